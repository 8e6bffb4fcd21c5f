"""A pod's life: it starts while the control API is away, enrols, waits for approval, reads, is
suspended, comes back, and loses its workload. No person handles a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner import tiers
from tests.support import redis
from tests.support.clusters import ISSUER, serving_keys
from tests.support.pods import Pod, running_pod
from tests.support.redis import running_redis
from tests.support.stack import Stack, call
from tests.support.waiting import AWAY, until

AGENT = "/v1/agents/lending.loans"
WORKLOAD = f"{ISSUER}:system:serviceaccount:lending:loans"


def reads(pod: Pod, status: int, denied: str = "") -> None:
    """Wait until a read ends like this."""
    until(f"{status} {denied}", lambda: pod.read() == (status, denied), despite=AWAY)


def approve(stack: Stack) -> None:
    stack.admin("PUT", AGENT, {"agent_role": "support"})
    for status in ("pending_approval", "approved"):
        stack.admin("PATCH", AGENT + "/status", {"status": status})


@tiers.rotating(1, 2)
@pytest.mark.parametrize("way", ["http", pytest.param("redis", marks=redis.needs_redis)])
def test_a_pod_enrols_works_and_loses_access_with_its_workload(tmp_path: Path, way: str) -> None:
    if way == "http":
        _life(tmp_path, None)
    else:
        with running_redis(tmp_path / "redis") as server:
            _life(tmp_path, server.url)


def _life(tmp_path: Path, redis_url: str | None) -> None:
    stack = Stack(tmp_path / "stack", redis_url=redis_url)
    settings = {"redis": redis_url, "least_documents": "off"} if redis_url else {}
    with (
        serving_keys() as keys,
        running_pod(tmp_path / "pod", stack.control.port, **settings) as pod,
    ):
        # It is alive at once, denies, and says why it is not ready.
        until(
            "it is alive", lambda: call(pod.sidecar.port, "GET", "/health")[0] == 200, despite=AWAY
        )
        assert pod.read() == (403, "not_enrolled")
        status, body = pod.ready()
        assert (status, "waiting to enrol" in body["details"]) == (503, True)

        stack.control.environ["SLUICE_ENROL_ISSUERS"] = f"{ISSUER}={keys.url}"
        stack.start_control()
        try:
            _enrolled_life(stack, pod, least=redis_url is None)
        finally:
            stack.control.stop()
        assert "slc_" not in pod.sidecar.tail(1_000_000)
        environ = Path(f"/proc/{pod.sidecar.pid}/environ").read_bytes()
        held = [path for path in pod.directory.rglob("*") if path.is_file()]
        assert b"slc_" not in environ + b"".join(path.read_bytes() for path in held)


def _enrolled_life(stack: Stack, pod: Pod, *, least: bool) -> None:
    reads(pod, 403, "agent_not_approved")
    assert "`lending.loans` is `draft`" in pod.ready()[1]["details"]
    assert stack.admin("GET", AGENT)["workload"] == WORKLOAD

    approve(stack)
    reads(pod, 200)
    assert pod.ready()[0] == 200
    assert 3000 < pod.metric("sluice_enrolment_expiry_seconds") <= 3600
    shown = {"agent_id": "lending.loans", "agent_role": "support", "workload": WORKLOAD}

    def reported() -> bool:
        listed = stack.admin("GET", "/v1/sidecars")
        return bool(listed) and shown.items() <= listed[0].items()

    until("it reports", reported, despite=AWAY)
    # Only what has the documents of all agents can list them.
    who = {
        "subject": {"type": "agent"},
        "action": {"name": "read"},
        "resource": {"type": "source", "id": "handbook"},
        "context": {"user_id": "ann"},
    }
    path, key = "/access/v1/search/subject", stack.admin_key
    status, found = call(pod.sidecar.port, "POST", path, who, key=key)
    assert status == (503 if least else 200), found
    assert not least or "documents of its own agent alone" in found["message"]

    stack.admin("PATCH", AGENT + "/status", {"status": "suspended"})
    # Within a second on a machine with nothing else to do: the status and the keys are one change.
    reads(pod, 403, "agent_not_approved")
    assert pod.ready()[0] == 503
    stack.admin("PATCH", AGENT + "/status", {"status": "approved"})
    reads(pod, 200)

    # Another role is another decision, without a restart.
    stack.admin("PUT", AGENT, {"agent_role": "teller"})
    reads(pod, 403, "default_deny")
    stack.admin("PUT", AGENT, {"agent_role": "support"})
    reads(pod, 200)

    # Another pod, with the same volume: what the first one recorded ships with the new keys.
    pod.sidecar.kill()
    pod.sidecar.start()
    reads(pod, 200)

    names = {"agent_not_approved", "default_deny", "support-reads", "not_enrolled"}
    until(
        "all is in the log",
        lambda: {e["policy_name"] for e in stack.events()} >= names,
        despite=AWAY,
    )

    stack.admin("PUT", AGENT, {"workload": None})
    reads(pod, 403, "agent_not_approved")
    agents = [each["agent_id"] for each in stack.admin("GET", "/v1/agents")]
    assert len(agents) == 2, "the workload is unknown again, so it waits for approval"

    report = stack.verify()
    assert report["valid"], report
