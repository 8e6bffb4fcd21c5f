"""A sidecar reaches Redis as the README tells operators to configure it: as a user limited to its
tenant, by TLS, and on a Redis Cluster. It does everything it needs in each case."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from policies.ground.addresses import RedisUrl
from policies.ground.keys import key_digest
from policies.sets.policy_set import (
    key_name,
    role_document,
    role_name,
    session_document,
    session_name,
)
from policies.sets.redis_keys import CHALLENGES, changes_key, document_field, session_key, set_key
from policies.sets.signed_head import Claim
from tests.support import redis
from tests.support.certificates import authority
from tests.support.fake_control_api import AGENT, EVALUATE_KEY, FAR, ROLE, many_roles, policy
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.redis import running_redis
from tests.support.redis_users import SECRET, SIDECAR, TENANT, make_user, refusals
from tests.support.relay import relaying
from tests.support.sidecar import EVALUATE, RunningSidecar, running_sidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis

WHO = f"{SIDECAR}:{SECRET}@127.0.0.1"


@asynccontextmanager
async def reached(
    tmp_path: Path, way: str
) -> AsyncIterator[tuple[FakeControlApiWithRedis, list[Any]]]:
    """A control API of the tenant, and the clients that may do everything on each node."""
    with ExitStack() as stack:
        if way == "cluster":
            nodes = stack.enter_context(redis.cluster(tmp_path))
            url = f"redis+cluster://{WHO}:{nodes[0].port},127.0.0.1:{nodes[1].port}"
        else:
            nodes = [stack.enter_context(running_redis(tmp_path / "redis"))]
            url = f"redis://{WHO}:{nodes[0].port}"
        if way == "tls":
            context, shown = authority().server("127.0.0.1"), authority().path
            relay = stack.enter_context(relaying(nodes[0].port, context))
            url = f"rediss://{WHO}:{relay.port}/0?ssl_ca_certs={shown}"
        roots: list[Any] = [redis_py.Redis(port=node.port, protocol=2) for node in nodes]
        for root in roots:
            make_user(root, SIDECAR)
        control = FakeControlApiWithRedis(nodes[0], cluster=way == "cluster")
        control.tenant_id, control.redis_url = TENANT, RedisUrl.parse(url)
        await control.start()
        try:
            yield control, roots
        finally:
            await control.stop()


async def in_force(running: RunningSidecar, control: FakeControlApiWithRedis) -> None:
    copy = running.parts.replica
    await until_async("it is in force", lambda: copy.policy_set.revision == control.revision)


@pytest.mark.parametrize("way", ["plain", "tls", "cluster"])
async def test_the_readme_s_user_may_do_all_that_a_sidecar_does(tmp_path: Path, way: str) -> None:
    async with reached(tmp_path, way) as (control, roots):
        control.create_tenant()
        control.publish(dict(many_roles(20)))
        claim = Claim(TENANT, control.epoch, "s-1", "active", ROLE, AGENT, FAR)
        published = {"c": claim.sealed(control.signer), "rank": 1}
        control.redis.hset(session_key(TENANT, "s-1"), mapping=published)
        async with running_sidecar(tmp_path, control, staleness_seconds=4.0) as running:
            # Documents that were never asked for before, and a session that needs no asking.
            assert (await running.evaluate(agent_role="role-3", agent_id=None))[
                "decision"
            ] == "ALLOW"
            assert (await running.evaluate(session_id="s-1"))["decision"] == "ALLOW"
            assert not control.claims
            # Changes: by the stream, and where the stream tells nothing of them.
            control.publish({session_name("s-1"): session_document("s-1")})
            await in_force(running, control)
            assert (await running.evaluate(session_id="s-1"))["policy_name"] == "session_revoked"
            control.redis.delete(changes_key(TENANT))
            control.pushes = False
            control.publish({role_name(ROLE): role_document([policy(allowed_sources=("rates",))])})
            control.rebuild()
            await in_force(running, control)
            assert (await running.evaluate())["decision"] == "DENY"
            # Damage is reported and repaired.
            control.feeds = False
            control.redis.hdel(set_key(TENANT), document_field(role_name("role-5")))
            request: dict[str, Any] = {"agent_role": "role-5", "agent_id": None}
            assert (await running.evaluate(**request))["policy_name"] == "evaluation_error"
            await until_async(
                "the damage is reported", lambda: "d/" + role_name("role-5") in control.missing()
            )
            control.rebuild()
            assert (await running.evaluate(**request))["decision"] == "ALLOW"
            control.pushes = True
            control.publish({key_name(key_digest(EVALUATE_KEY)): None})
            await in_force(running, control)
            assert (await running.call("POST", EVALUATE, b"{}")).status == 403
            assert {*running.parts.readiness.problems()} == {"agent_key"}  # it was revoked
        assert [entry for root in roots for entry in refusals(root, SIDECAR)] == []


@pytest.mark.deep(stands_in="test_the_readme_s_user_may_do_all_that_a_sidecar_does")
async def test_a_tenant_and_its_challenges_may_be_on_different_nodes_of_a_cluster(
    tmp_path: Path,
) -> None:
    async with reached(tmp_path, "cluster") as (control, roots):
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            assert (await running.evaluate())["decision"] == "ALLOW"
        where = [root.dbsize() for root in roots]
        slots = [control.redis.keyslot(key) < 8192 for key in (CHALLENGES, set_key(TENANT))]
        assert slots[0] != slots[1]
        assert all(where), where


async def test_a_server_with_an_untrusted_certificate_learns_nothing(
    tmp_path: Path,
) -> None:
    async with reached(tmp_path, "tls") as (control, roots):
        control.create_tenant()
        assert control.redis_url is not None
        host, port = control.redis_url.nodes[0]
        control.redis_url = RedisUrl.parse(f"rediss://{WHO}:{port}/0")
        assert host == "127.0.0.1"
        async with running_sidecar(tmp_path, control, synced=False) as running:
            follower = running.parts.follower
            await until_async("it gives up", lambda: follower.failures >= 3)
            assert "certificate" in str(follower.problem).lower()
            assert SECRET not in str(follower.problem)
            assert (await running.call("POST", EVALUATE, b"{}")).status == 503
        assert not roots[0].exists(CHALLENGES)


async def test_a_missing_permission_is_reported(tmp_path: Path) -> None:
    async with reached(tmp_path, "plain") as (control, roots):
        control.create_tenant()
        roots[0].execute_command("ACL", "SETUSER", SIDECAR, "-xadd")
        async with running_sidecar(tmp_path, control, synced=False) as running:
            follower = running.parts.follower
            await until_async("there is trouble", lambda: follower.problem is not None)
            assert "xadd" in str(follower.problem)
            # The tenant's name in place of its id: the problem names the pattern that is needed.
            roots[0].execute_command("ACL", "SETUSER", SIDECAR, "resetkeys", "~sluice:{Acme}:*")
            await until_async("it is another", lambda: "xadd" not in str(follower.problem))
            assert "needs" in str(follower.problem)
            assert "`sluice:{acme}:*` and `sluice:challenges`" in str(follower.problem)
