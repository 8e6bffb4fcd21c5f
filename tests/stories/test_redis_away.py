"""Redis fails while both services run: nothing is denied because of it, and a revocation is
soon in force by long poll. Then Redis comes back, empty or with an older state."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.stories.test_management_reaches_sidecars import agent_key_id, soon
from tests.support import redis
from tests.support.redis import running_redis
from tests.support.stack import Stack, call, running_stack
from tests.support.waiting import AWAY, until

pytestmark = redis.needs_redis


def feed(stack: Stack) -> str:
    status, ready = call(stack.sidecar.port, "GET", "/health/ready")
    assert status == 200, ready
    return str(ready["policy_feed"])


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_failover.py::test_decisions_and_revocations_continue_without_redis"
)
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_thirty_seconds_without_redis_deny_nothing(tmp_path: Path, fault: signal.Signals) -> None:
    with (
        running_redis(tmp_path / "redis") as server,
        # A limit that the outage exceeds, and that a stall of the machine does not.
        running_stack(tmp_path / "stack", redis_url=server.url, staleness=25) as stack,
    ):
        assert feed(stack) == "redis"
        began = time.monotonic()
        server.signal(fault)
        while time.monotonic() - began < 30:
            asked = {"session_id": f"s-{int(time.monotonic() - began)}"}
            assert stack.evaluate(**asked)[1]["decision"] == "ALLOW", asked
            time.sleep(0.1)
        assert feed(stack) == "control"
        stack.admin("DELETE", "/v1/sessions/s-1")
        soon(stack, (200, "session_revoked"), session_id="s-1")
        key_id = agent_key_id(stack)
        new = stack.admin("POST", f"/v1/keys/{key_id}/rotate")
        soon(stack, (403, ""))
        stack.agent_key = new["key"]
        soon(stack, (200, ""))
        if fault is signal.SIGKILL:
            server.start()
        else:
            server.signal(signal.SIGCONT)
        until("it follows Redis again", lambda: feed(stack) == "redis", despite=AWAY)
        soon(stack, (200, "session_revoked"), session_id="s-1")
        stack.admin("DELETE", f"/v1/keys/{new['key_id']}")
        soon(stack, (403, ""))


def test_a_redis_restored_from_an_older_dump_brings_nothing_back(tmp_path: Path) -> None:
    with (
        running_redis(tmp_path / "redis", dbfilename="dump.rdb") as server,
        running_stack(tmp_path / "stack", redis_url=server.url) as stack,
    ):
        assert server.command("SAVE") == b"+OK\r\n"
        (policy,) = stack.admin("GET", "/v1/policies")
        stack.admin("DELETE", f"/v1/policies/{policy['policy_id']}")
        soon(stack, (200, "default_deny"))
        server.signal(signal.SIGKILL)
        server.start()
        began = time.monotonic()
        while time.monotonic() - began < 8:
            assert stack.evaluate()[1]["policy_name"] == "default_deny"
            time.sleep(0.05)
        until("it follows Redis", lambda: feed(stack) == "redis", despite=AWAY)
        stack.admin("POST", f"/v1/policies/{policy['policy_id']}/restore")
        soon(stack, (200, ""))
