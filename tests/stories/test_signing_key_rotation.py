"""The log's key is rotated: sidecars that pinned the old one follow, and nothing is lost."""

from __future__ import annotations

import http.client
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from policies.ground.signing import Signer
from policies.sets.redis_keys import changes_key
from policies.sets.signed_head import SetHead
from tests.support import fork_server, redis
from tests.support.ports import free_port
from tests.support.postgres import serving
from tests.support.redis import running_redis
from tests.support.stack import Service, Stack, call, running_stack
from tests.support.waiting import AWAY, until


def rotate(stack: Stack) -> None:
    command = [sys.executable, "-m", "control_api", "rotate-key"]
    fork_server.run(command, {**os.environ, **stack.control.environ}, check=True)


def figure(stack: Stack, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", stack.sidecar.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def all_signed_for(stack: Stack) -> None:
    """A sidecar deletes records only on a receipt that is signed by a key it trusts."""
    until("receipts are believed", lambda: figure(stack, "sluice_spool_records") == 0, despite=AWAY)


def allowed(stack: Stack, **changed: Any) -> bool:
    status, answer = stack.evaluate(**changed)
    assert status == 200, answer
    return bool(answer["decision"] == "ALLOW")


@pytest.mark.deep(stands_in="test_a_sidecar_that_was_down_for_two_rotations_follows_both")
def test_a_running_sidecar_follows_a_rotation(either_way: Stack) -> None:
    stack = either_way
    assert allowed(stack)
    all_signed_for(stack)
    rotate(stack)
    assert stack.control.stop() == 0
    # Decided while no control API can sign a receipt for it.
    assert allowed(stack)
    stack.start_control()
    all_signed_for(stack)
    stack.policy_file.write_text(stack.policies.replace("handbook, ", ""))
    until("the change is in force", lambda: not allowed(stack), despite=AWAY)
    all_signed_for(stack)
    assert stack.verify()["valid"]
    assert len(stack.admin("GET", "/v1/sidecars/policy-set")["log_key_history"]) == 1


def test_a_sidecar_that_was_down_for_two_rotations_follows_both(either_way: Stack) -> None:
    stack = either_way
    assert allowed(stack)
    stack.sidecar.stop()
    rotate(stack)
    rotate(stack)
    stack.control.stop()
    stack.start_control()
    stack.sidecar.start()
    assert allowed(stack)
    all_signed_for(stack)
    assert call(stack.sidecar.port, "GET", "/health/ready")[0] == 200
    assert stack.verify()["valid"]


@contextmanager
def another_replica(stack: Stack) -> Iterator[Service]:
    """A replica on the same database with the same key, and its own data directory."""
    data, port = stack.directory / "second", free_port()
    data.mkdir(mode=0o700)
    shutil.copy(stack.directory / "data" / "log.key", data)
    environ = stack.control.environ | {
        "SLUICE_DATA_DIR": str(data),
        "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
    }
    log = stack.directory / "second.log"
    second = Service("second", stack.control.command, environ, log, port)
    second.start()
    try:
        yield second
    finally:
        second.stop()


def status_of(stack: Stack, key: str) -> int:
    """The sidecar's decision for an agent with this key."""
    path = "/v1/context/evaluate"
    return call(stack.sidecar.port, "POST", path, stack.ask(), key=key)[0]


def made_by(stack: Stack, port: int) -> dict[str, Any]:
    wanted = {"name": "agent", "scope": "evaluate"}
    status, made = call(port, "POST", "/v1/keys", wanted, key=stack.admin_key)
    assert status == 201, made
    return dict(made)


def revoked_by(stack: Stack, port: int, key_id: str) -> None:
    answer = call(port, "DELETE", f"/v1/keys/{key_id}", key=stack.admin_key)
    assert answer[0] < 300, answer


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/test_key_pin.py::test_a_sidecar_that_starts_during_a_rotation_trusts_both_keys"
)
@redis.needs_redis
def test_both_keys_are_trusted_while_replicas_restart_one_after_another(
    tmp_path: Path, migrated_url: str
) -> None:
    """One replica signs with the new key, one with the old, which the sidecar asks; what either
    publishes is in force, and none of it counts as forged. A head by a foreign key does."""
    url, forged = serving(migrated_url), "sluice_policy_set_forged_total"
    with (
        running_redis(tmp_path / "redis") as server,
        running_stack(tmp_path / "stack", database_url=url, redis_url=server.url) as stack,
    ):
        assert allowed(stack)
        rotate(stack)
        old = stack.control
        with another_replica(stack) as new:
            for maker, revoker in [(old, new), (new, old)] * 3:
                made = made_by(stack, maker.port)
                until(
                    "the key is known",
                    lambda key=made["key"]: status_of(stack, key) == 200,  # type: ignore[misc]
                    despite=AWAY,
                )
                revoked_by(stack, revoker.port, made["key_id"])
                until(
                    "it is revoked",
                    lambda key=made["key"]: status_of(stack, key) == 403,  # type: ignore[misc]
                    despite=AWAY,
                )
            assert old.stop() == 0
            stack.start_control()
            all_signed_for(stack)
            for port in (stack.control.port, new.port):
                report = call(port, "GET", "/v1/audit/verify", key=stack.admin_key)[1]
                assert report["valid"], report
            assert figure(stack, forged) == 0
            head = SetHead("default", "e", 0, 1, "", None).sealed(Signer.generate())
            with redis_py.Redis(port=server.port) as attacker:
                attacker.xadd(changes_key("default"), {"h": head})
            until("it counts", lambda: figure(stack, forged) == 1, despite=AWAY)
