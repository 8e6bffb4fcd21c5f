"""An operator purges half of a log beside the running service, while agents keep asking and an
auditor keeps verifying: no recent entry is lost, and the log verifies all the time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from control_api.settings import read
from tests.benchmarks.purge import environ, fill
from tests.support import fork_server
from tests.support.ports import free_port
from tests.support.properties import few
from tests.support.stack import Service, call

OLD = YOUNG = few(20_000, at_least=8_000)
ASKED = {
    "agent_role": "support",
    "user_id": "ann",
    "source_id": "handbook",
    "sensitivity_level": "low",
}


def purge(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return fork_server.run([sys.executable, "-m", "control_api", "purge"], {**os.environ, **env})


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_purge.py::test_a_purge_removes_old_entries_and_the_rest_verifies"
)
def test_half_of_a_log_is_purged_while_agents_ask(tmp_path: Path) -> None:
    port = free_port()
    env = environ(tmp_path, port)
    key = asyncio.run(fill(read(env), OLD, YOUNG))
    serving = [sys.executable, "-m", "control_api"]
    service = Service("control", serving, env, tmp_path / "control.log", port)
    service.start()
    answered: list[str] = []
    verified: list[Any] = []
    over = threading.Event()

    def ask(method: str, path: str, body: object = None) -> Any:
        status, answer = call(port, method, path, body, key=key, timeout=60)
        assert status == 200, answer
        return answer

    def agent() -> None:
        while not over.is_set():
            answered.append(ask("POST", "/v1/context/evaluate", ASKED)["event_id"])

    def auditor() -> None:
        while not over.is_set():
            verified.append(ask("GET", "/v1/audit/verify"))

    try:
        verified.append(ask("GET", "/v1/audit/verify"))
        assert verified[0]["events"] == OLD + YOUNG
        ask("PUT", "/v1/settings/retention", {"retention_days": 30})
        threads = [threading.Thread(target=each) for each in (*[agent] * 6, auditor)]
        for thread in threads:
            thread.start()
        done = purge(env)
        over.set()
        for thread in threads:
            thread.join()
        assert done.returncode == 0, done.stderr
        after = ask("GET", "/v1/audit/verify")
        stats = ask("GET", "/v1/audit/stats")
        shown = ask("GET", "/v1/audit/events?limit=1000")
    finally:
        service.kill()
    assert len(verified) > 1
    assert all(each["valid"] for each in verified), [each["reason"] for each in verified]
    assert after["valid"], after["reason"]
    assert after["first_seq"] == after["anchor"]["purged_count"] >= OLD
    # Each of the young, and each that was answered meanwhile.
    assert after["events"] == stats["total"] == YOUNG + len(answered)
    assert {each["event_id"] for each in shown}.issuperset(answered[-100:])
