"""Two control API processes reach PostgreSQL through PgBouncer in transaction mode. Agents ask one
of them and a sidecar ships to the other, an operator purges the old half of the log, and an auditor
exports the rest."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_api.settings import read
from deploy.commands.client.client import run as operate
from deploy.commands.verify.__main__ import main as verify
from policies.ground.signing import Signer
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from tests.benchmarks.purge import fill
from tests.support import pgbouncer
from tests.support.ports import free_port
from tests.support.postgres import serving
from tests.support.stack import ROOT, Service, Stack, call

OLD, YOUNG, ASKED = 600, 200, 40


@pytest.fixture
def pooled(tmp_path: Path, migrated_url: str) -> Iterator[Stack]:
    with pgbouncer.before(serving(migrated_url)) as url:
        stack = Stack(tmp_path, database_url=url)
        stack.control.environ |= {
            "SLUICE_DATABASE_POOLED": "1",
            "SLUICE_LISTEN_DATABASE_URL": serving(migrated_url),
        }
        try:
            yield stack
        finally:
            stack.stop()


@pytest.fixture
def second(pooled: Stack, tmp_path: Path) -> Iterator[Service]:
    """Another process, with data of its own beside the shared key and checkpoints."""
    port = free_port()
    environ = {
        **pooled.control.environ,
        "SLUICE_DATA_DIR": str(tmp_path / "second"),
        "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
        "SLUICE_CHECKPOINT_STORE": f"file://{tmp_path / 'data' / 'checkpoints'}",
    }
    command = [sys.executable, "-m", "control_api"]
    service = Service("second control API", command, environ, tmp_path / "second.log", port)
    yield service
    service.stop()


@pytest.mark.deep(
    stands_in="tests/control_api/store/postgresql/test_pooler.py::test_logs_of_two_tenants_grow_at_once_and_verify"
)
def test_decisions_purges_and_verification_work_through_pgbouncer(
    pooled: Stack, second: Service, tmp_path: Path
) -> None:
    pooled.admin_key = asyncio.run(fill(read(pooled.control.environ), OLD, YOUNG))
    pooled.control.start()
    Path(second.environ["SLUICE_DATA_DIR"]).mkdir(mode=0o700)
    shutil.copy(tmp_path / "data" / "log.key", tmp_path / "second" / "log.key")
    second.start()
    pooled.prepare()
    pooled.sidecar.start()

    events: list[str] = []

    def of_sidecar() -> None:
        for _ in range(ASKED):
            status, answer = pooled.evaluate()
            assert (status, answer["decision"]) == (200, "ALLOW"), answer
            events.append(answer["event_id"])

    def of_second() -> None:
        for _ in range(ASKED):
            path, key = "/v1/context/evaluate", pooled.agent_key
            status, answer = call(second.port, "POST", path, pooled.ask(), key=key)
            assert (status, answer["decision"]) == (200, "ALLOW"), answer
            events.append(answer["event_id"])

    threads = [threading.Thread(target=each) for each in (of_sidecar, of_second, of_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(events)) == 3 * ASKED
    for event in events[-3:]:
        pooled.wait_shipped(event)

    whole = pooled.verify()
    assert whole["valid"], whole["reason"]
    pooled.admin("PUT", "/v1/settings/retention", {"retention_days": 30})
    purge = [sys.executable, "-m", "control_api", "purge"]
    environ = {**os.environ, **pooled.control.environ}
    subprocess.run(purge, env=environ, cwd=ROOT, check=True, timeout=120)
    left = pooled.verify()
    assert left["valid"], left["reason"]
    assert left["anchor"]["purged_count"] >= OLD  # and the first start
    assert call(second.port, "GET", "/v1/audit/verify", key=pooled.admin_key)[1]["valid"]

    reach = {"SLUICE_URL": f"http://127.0.0.1:{second.port}", "SLUICE_API_KEY": pooled.admin_key}
    assert operate("export", ["-o", str(tmp_path / "log.ndjson")], reach) == 0
    assert verify([str(tmp_path / "log.ndjson"), "--key", log_key(pooled)]) == 0


def log_key(stack: Stack) -> str:
    """The key of the log, as who verifies an export gives it."""
    seed = base64.b64decode((stack.directory / "data" / "log.key").read_text().split()[0])
    origin = stack.admin("GET", "/v1/audit/checkpoints?limit=1")[0]["origin"]
    return VerifierKey(origin, ED25519, Signer(seed).public).text()
