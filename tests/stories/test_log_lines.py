"""Off a terminal, every line of every process is JSON with the same members, through starts,
faults, complaints and kills. On a terminal it is text for people."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fork_server, redis
from tests.support.log_lines import TIME, entries
from tests.support.ports import free_port
from tests.support.redis import running_redis
from tests.support.stack import ROOT, Stack, call
from tests.support.waiting import AWAY, until


def messages(log: str, level: str) -> list[str]:
    return [entry["message"] for entry in entries(log) if entry["level"] == level]


def run(module: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if "SLUICE" not in name}
    return fork_server.run([sys.executable, "-m", module, *arguments], {**kept, **environ})


@pytest.mark.deep(stands_in="test_faults_of_settings_and_failures_are_logged_as_entries_too")
@redis.needs_redis
def test_every_line_of_either_service_during_faults_is_a_valid_entry(tmp_path: Path) -> None:
    with running_redis(tmp_path / "redis") as server:
        debug = {"SLUICE_LOG_LEVEL": "debug"}
        stack = Stack(tmp_path / "stack", redis_url=server.url, staleness=4)
        stack.control.environ |= debug
        stack.sidecar.environ |= debug
        try:
            stack.start()
            stack.policy_file.write_text("policies:\n  - name: [broken\n")
            assert stack.evaluate()[1]["decision"] == "ALLOW"
            decided = call(
                stack.control.port, "POST", "/v1/context/evaluate", stack.ask(), key=stack.agent_key
            )
            assert decided[0] == 200
            server.signal(signal.SIGKILL)
            for _ in range(2):
                call(stack.control.port, "GET", "/v1/%0aforged", key=stack.admin_key)
                call(stack.sidecar.port, "POST", "/v1/context/evaluate", {}, key="slc_none")
            until(
                "the sidecar follows the control API",
                lambda: "from the control API" in stack.sidecar.tail(100_000),
                despite=AWAY,
            )
            until(
                "the policy file is refused",
                lambda: "support.yaml" in stack.control.tail(100_000),
                despite=AWAY,
            )
        finally:
            stack.stop()
        control, sidecar = stack.control.tail(1_000_000), stack.sidecar.tail(1_000_000)
        assert any("support.yaml" in each for each in messages(control, "error"))
        assert any("from the control API" in each for each in messages(sidecar, "warning"))
        assert messages(control, "debug")
        assert messages(sidecar, "debug")
        for log in (control, sidecar):
            assert stack.agent_key not in log
            assert stack.sidecar_key not in log


def test_faults_of_settings_and_failures_are_logged_as_entries_too(tmp_path: Path) -> None:
    data = {"SLUICE_DATA_DIR": str(tmp_path / "data")}
    port = free_port()
    for done, code in (
        (run("control_api", **data, SLUICE_WORKERS="x", SLUICE_NOPE="1"), 2),
        (run("control_api", **data, SLUICE_LOG_LEVEL="x", SLUICE_LOG_FORMAT="x"), 2),
        (run("sidecar", "--config", str(tmp_path / "no\nfile")), 2),
        (run("sidecar", "--config", str(tmp_path), SLUICE_LOG_FORMAT="x"), 2),
        (run("control_api", **data, SLUICE_CONTROL_LISTEN=f"192.0.2.1:{port}"), 1),
    ):
        assert done.returncode == code, (done.stdout, done.stderr)
        assert entries(done.stdout + done.stderr)


def test_an_uncaught_error_is_logged_as_an_entry_with_its_trace(tmp_path: Path) -> None:
    code = (
        "import sys, warnings, threading\n"
        "from policies.ground.process import json_logging as journal\n"
        "journal.configure('{service}', 'info', lambda: 0)\n"
        "journal.catch_all('{service}')\n"
        "warnings.warn('a warning')\n"
        "thread = threading.Thread(target=lambda: 1 / 0)\n"
        "thread.start(); thread.join()\n"
        "class Bad:\n"
        "    def __del__(self): raise OSError('in a finaliser')\n"
        "Bad()\n"
        "raise ValueError('two\\nlines')\n"
    )
    for service in ("sluice", "sidecar"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(service=service)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        found = entries(done.stderr)
        assert {"py.warnings", service} == {entry["logger"] for entry in found}
        errors = " ".join(entry.get("error", entry["message"]) for entry in found)
        for cause in ("a warning", "ZeroDivisionError", "in a finaliser", "two\nlines"):
            assert cause in errors, (service, done.stderr)


@pytest.mark.deep(
    stands_in="tests/policies/ground/test_log_line.py::test_each_service_checks_whether_it_writes_to_a_terminal"
)
@pytest.mark.parametrize("form", ["json", "text", None])
def test_a_terminal_gets_lines_for_people_unless_set_otherwise(
    tmp_path: Path, form: str | None
) -> None:
    environ = {"SLUICE_LOG_FORMAT": form} if form else {}
    for module, arguments in (("control_api", []), ("sidecar", ["--config", str(tmp_path / "no")])):
        ours, theirs = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if "SLUICE" not in name}
        with open(theirs, "w") as terminal:
            started = fork_server.start(
                [sys.executable, "-m", module, *arguments],
                terminal,
                {**kept, "SLUICE_DATA_DIR": str(tmp_path), "SLUICE_WORKERS": "0", **environ},
                ROOT,
            )
            assert started.wait(120) == 2
            said = os.read(ours, 65536).decode()
        os.close(ours)
        if form == "json":
            assert entries(said)
        else:
            assert re.match(TIME.pattern + r" ERROR (sluice|sidecar): \S", said), said
        plain = run(module, *arguments, SLUICE_WORKERS="0", **environ)
        if form == "text":
            assert re.match(TIME.pattern + r" ERROR (sluice|sidecar): \S", plain.stderr)
        else:
            assert entries(plain.stderr)
