"""A real rsyslog over TLS, with the configuration that the README gives to users."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.control_api.audit.export_push.receiver import decide, lag
from tests.servers import need
from tests.support.certificates import authority
from tests.support.control_api import running_control_api
from tests.support.ports import free_port
from tests.support.waiting import until

README = Path(__file__).resolve().parents[4] / "control_api/audit/export_push/README.md"


class Rsyslog:
    """One rsyslogd, whether it runs or not."""

    def __init__(self, folder: Path) -> None:
        self._program, self._folder, self.port = need("rsyslogd"), folder, free_port()
        folder.mkdir()
        self.written = folder / "sluice.ndjson"
        pair = authority().issue("127.0.0.1")
        given = re.search(r"```text\n(global\(.*?)```", README.read_text(), re.DOTALL)
        assert given is not None
        text = given[1]
        for there, here in (
            ("/etc/rsyslog.d/ca.pem", authority().path),
            ("/etc/rsyslog.d/server.crt", pair.certificate),
            ("/etc/rsyslog.d/server.key", pair.key),
            ("/var/log/sluice.ndjson", self.written),
            ("/var/spool/rsyslog", folder),
            ('"6514"', f'"{self.port}" address="127.0.0.1"'),
        ):
            assert there in text
            text = text.replace(there, str(here))
        (folder / "rsyslog.conf").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        place = [f"-f{self._folder}/rsyslog.conf", f"-i{self._folder}/pid"]
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, "-n", *place], stdout=output, stderr=output
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def ids(self) -> list[str]:
        if not self.written.exists():
            return []
        # The last line may still be on its way.
        whole, _, _ = self.written.read_text().rpartition("\n")
        lines = whole.splitlines()
        return [json.loads(line)["event"]["id"] for line in lines]

    def has(self, made: list[str]) -> bool:
        return len(self.ids()) >= len(made)


@pytest.fixture
def rsyslog(tmp_path: Path) -> Iterator[Rsyslog]:
    made = Rsyslog(tmp_path / "rsyslog")
    yield made
    made.stop()


def test_rsyslog_takes_every_decision_over_tls(rsyslog: Rsyslog, tmp_path: Path) -> None:
    url = f"syslog+tls://127.0.0.1:{rsyslog.port}?format=ecs&ca={authority().path}"
    rsyslog.start()
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=url) as api:
        made = decide(api, 250) + decide(api, 20, source_id="payroll")
        until("the records have arrived", partial(rsyslog.has, made))
        rsyslog.stop()
        made += decide(api, 30)
        rsyslog.start()
        until("the records have arrived", partial(rsyslog.has, made))
        until("everything is exported", lambda: lag(api) == 0)
    assert list(dict.fromkeys(rsyslog.ids())) == made
