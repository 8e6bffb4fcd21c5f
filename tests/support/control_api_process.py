"""The service as a process of its own, for tests of how it starts, runs and stops."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import fork_server
from tests.support.control_api import POLICIES
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]


class ControlApiProcess:
    """`python -m control_api`, and its output. `program` replaces it as the arguments of Python."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        program: Sequence[str] = ("-m", "control_api"),
        output: Any = None,
        **environ: str,
    ) -> None:
        self.directory = directory
        policy_file = directory / "policies" / "default" / "demo" / "support.yaml"
        if not policy_file.exists():
            policy_file.parent.mkdir(parents=True)
            policy_file.write_text(POLICIES)
        kept = {name: value for name, value in os.environ.items() if "SLUICE" not in name}
        self.output = output or (directory / "output").open("w+")
        self.process = fork_server.start(
            [sys.executable, *program, *arguments],
            self.output,
            {
                **kept,
                "SLUICE_DATA_DIR": str(directory / "data"),
                "SLUICE_POLICY_DIR": str(directory / "policies"),
                "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
                **environ,
            },
            ROOT,
        )

    def said(self) -> str:
        return (self.directory / "output").read_text()

    def ready(self) -> int:
        """Return the port, once it says where it listens."""
        mark = "listens on http://127.0.0.1:"

        def listening() -> bool:
            assert self.process.poll() is None, self.said()
            return mark in self.said()

        until("it listens", listening)
        return int(self.said().partition(mark)[2].split('"')[0])

    def ended(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def first_keys(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.directory / "data" / "first-start.json").read_text()
        )
        return found


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Any]:
    made: list[ControlApiProcess] = []

    def start(*arguments: str, **environ: str) -> ControlApiProcess:
        made.append(ControlApiProcess(tmp_path, *arguments, **environ))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        each.output.close()


def call(port: int, key: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found
