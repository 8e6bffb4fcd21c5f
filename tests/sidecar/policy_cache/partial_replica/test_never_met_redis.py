"""A sidecar that starts while Redis is away does without it."""

from __future__ import annotations

from pathlib import Path

from policies.definitions.model import Key
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import candidate_name, key_document, key_name
from tests.sidecar.policy_cache.partial_replica.redis_set import held_documents
from tests.sidecar.policy_cache.partial_replica.test_failover import allowed, away, in_force
from tests.support import redis
from tests.support.candidate_tenants import TenantWithCandidates
from tests.support.fake_control_api import ROLE, SIDECAR_KEY, policy
from tests.support.sidecar import EVALUATE, RunningSidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis

CLOSED = {ROLE: [policy(allowed_sources=())]}


async def candidates(running: RunningSidecar) -> list[str]:
    """What the candidates decided of a request, each by its entry."""
    assert await allowed(running)
    pub = (await running.records())[-1]["pub"]
    return [each["decision"] for each in pub.get("candidates", [])]


async def test_a_sidecar_that_never_met_redis_follows_the_control_api_in_everything(
    tmp_path: Path,
) -> None:
    async with away(tmp_path, met=False) as (control, running):
        assert running.parts.follower.feed == "control"
        assert await allowed(running)
        made, strange = make_key(b"m" * 32), make_key(b"n" * 32)
        control.publish({key_name(key_digest(made)): key_document(Key("key_m", "evaluate"))})
        assert await allowed(running, key=made)
        assert (await running.call("POST", EVALUATE, b"{}", key=strange)).status == 403

        world = TenantWithCandidates({ROLE: [policy()]}, {"closed": CLOSED})
        world.publish(control)
        await in_force(running, control)
        assert await candidates(running) == ["ERROR"]
        document = candidate_name("closed", ROLE)
        await until_async("its document is here", lambda: document in held_documents(running))
        assert await candidates(running) == ["DENY"]
        world.candidates = {"closed": world.active}
        world.publish(control)
        await in_force(running, control)
        assert await candidates(running) == []
        world.candidates = {"closed": CLOSED}
        world.publish(control)
        await in_force(running, control)
        assert await candidates(running) == ["DENY"]

        control.publish({key_name(key_digest(SIDECAR_KEY)): None})
        await until_async(
            "it is barred", lambda: "policy_set" in running.parts.readiness.problems()
        )
        assert (await running.evaluate())["policy_name"] == "policy_set_stale"
