"""A real Prometheus on loopback that scrapes the targets of a test and evaluates our rules."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.architecture.tree import ROOT
from tests.servers import need
from tests.support import ports, waiting


class Prometheus:
    """One that runs; `query` asks it."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        """The `data` of an answer, whatever its status."""
        url = f"{self._base}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query. A query that can't be read raises `HTTPError`."""
        result: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        return result

    def wait_for(self, expression: str) -> None:
        """Return once the query has a sample."""
        waiting.until(f"a sample of {expression}", lambda: self.query(expression))


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """Scrapes `targets`, ports by job, every second, and has scraped each three times."""
    program, port = need("prometheus"), ports.free_port()
    folder.mkdir()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy/prometheus/rules.yaml")],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
            for job, target in targets.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        str(program),
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            server = Prometheus(port)
            waiting.until("Prometheus to scrape", lambda: _scraped(server, len(targets)))
            yield server
        finally:
            process.terminate()


def _scraped(server: Prometheus, targets: int) -> bool:
    try:
        found = server.query("count_over_time(up[1m]) >= 3 and up == 1")
    except OSError:
        return False  # not listening yet
    return len(found) == targets
