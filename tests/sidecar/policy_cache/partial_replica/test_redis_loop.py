"""A policy set through a Redis that may be lost or late: that delays, and no more."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from policies.definitions.model import Key, TenantSettings
from policies.ground.keys import key_digest, make_key
from policies.ground.signing import Signer
from policies.sets.merkle_map import path
from policies.sets.policy_set import (
    TENANT,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
    session_document,
    session_name,
    tenant_document,
)
from policies.sets.redis_keys import (
    beats_key,
    changes_key,
    document_field,
    session_key,
    set_key,
)
from policies.sets.signed_head import Claim
from tests.sidecar.policy_cache.partial_replica.redis_set import (
    LIMIT,
    allowed,
    caught_up,
    fake_control_api_with_redis,
    held_documents,
)
from tests.support import redis
from tests.support.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    FAR,
    ROLE,
    SIDECAR_KEY,
    many_roles,
    policy,
)
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.sidecar import EVALUATE, FakeClock, running_sidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis


async def test_only_used_documents_are_kept(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        control.publish(dict(many_roles(300)))
        async with running_sidecar(tmp_path, control) as running:
            assert await allowed(running)
            assert len(held_documents(running)) == 6
            assert await allowed(running, agent_role="role-7", agent_id=None)
            assert held_documents(running).keys() >= {role_name("role-7")}
            assert len(held_documents(running)) == 7


async def test_a_changed_document_that_is_held_is_fetched_at_once(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            assert await allowed(running)
            control.publish({role_name(ROLE): role_document([policy(allowed_sources=("rates",))])})
            await caught_up(running, control)
            assert not await allowed(running)
            control.publish({agent_name(AGENT): None})
            await caught_up(running, control)
            assert (await running.evaluate(source_id="rates"))["policy_name"] == (
                "agent_not_registered"
            )
            control.publish({key_name(key_digest(EVALUATE_KEY)): None})
            await caught_up(running, control)
            assert (await running.call("POST", EVALUATE, b"{}")).status == 403


async def test_many_changes_at_once_are_all_in_force(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            for number in range(60):
                sources = ("contracts",) if number % 2 else ("rates",)
                body = role_document([policy(allowed_sources=sources, version=number + 1)])
                control.publish({role_name(ROLE): body, agent_name(f"agt_{number}"): b"{}"})
                if number % 7 == 0:
                    await asyncio.sleep(0.005)
            await caught_up(running, control)
            assert await allowed(running)


async def test_heartbeats_for_other_sidecars_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each heartbeat would wake every sidecar of the tenant. One that no key signed is counted, but
    only by a sidecar that waits for an answer just then."""
    metric = "sluice_policy_set_forged_total"
    monkeypatch.setattr("sidecar.policy_cache.partial_replica.redis_loop.KEY_INTERVAL", 0.0)
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            for number in range(10):
                before = await running.metric(metric)
                control.redis.xadd(beats_key(control.tenant_id), {"b": b"unsigned"})
                # In force: so what was in the streams before it was read, too, and with the second
                # change it was looked at again.
                for version in (2 * number + 2, 2 * number + 3):
                    control.publish({role_name(ROLE): role_document([policy(version=version)])})
                    await caught_up(running, control)
                if await running.metric(metric) == before:
                    return
    raise AssertionError("every heartbeat was read")


async def test_an_emptied_redis_only_delays_changes(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            control.redis.flushall()
            assert await allowed(running)
            body = role_document([policy(allowed_sources=("rates",))])
            control.pushes = False
            control.publish({role_name(ROLE): body})
            control.rebuild()
            await caught_up(running, control)
            assert not await allowed(running)


async def test_a_removed_document_is_found_even_if_comparing_takes_several_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.policy_cache.partial_replica.incremental_sync.CHUNK", 5)
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        control.publish(dict(many_roles(12)))
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            for number in range(12):
                assert await allowed(running, agent_role=f"role-{number}", agent_id=None)
            control.pushes = False
            control.redis.delete(changes_key(control.tenant_id))
            control.publish({role_name("role-11"): None})
            control.rebuild()
            await caught_up(running, control)
            answer = await running.evaluate(agent_role="role-11", agent_id=None)
            assert answer["policy_name"] == "default_deny"
            assert await allowed(running, agent_role="role-10", agent_id=None)


@pytest.mark.deep(
    stands_in="test_a_removed_document_is_found_even_if_comparing_takes_several_reads"
)
async def test_changes_that_were_trimmed_away_are_found_by_comparing(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        control.publish(dict(many_roles(900)))
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            for number in range(900):
                assert await allowed(running, agent_role=f"role-{number}", agent_id=None)
            assert len(held_documents(running)) > 900
            control.server.signal(signal.SIGSTOP)
            await asyncio.sleep(0.2)
            control.server.signal(signal.SIGCONT)
            with control.redis.pipeline() as pipe:
                pipe.delete(changes_key(control.tenant_id))
                pipe.execute()
            control.pushes = False
            removed = role_name("role-11")
            control.publish({removed: None})
            control.rebuild()
            await caught_up(running, control)
            answer = await running.evaluate(agent_role="role-11", agent_id=None)
            assert answer["policy_name"] == "default_deny"
            assert await allowed(running, agent_role="role-12", agent_id=None)


async def test_a_set_of_another_store_replaces_everything(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            assert await allowed(running)
            control.epoch, control.revision, control.documents = "epoch-2", 0, {}
            control.redis.flushall()
            control.create_tenant(policy(allowed_sources=("rates",)))
            replica = running.parts.replica
            await until_async(
                "it is in force",
                lambda: (replica.epoch(), replica.policy_set.revision) == ("epoch-2", 6),
            )
            await until_async("it is confirmed", lambda: not running.parts.readiness.problems())
            assert not await allowed(running)
            assert await allowed(running, source_id="rates")


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_an_unreachable_redis_only_delays_changes(
    tmp_path: Path, fault: signal.Signals
) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=30) as running:
            control.feeds = False
            assert await allowed(running)
            control.server.signal(fault)
            assert await allowed(running)
            answer = await running.evaluate(agent_role="unknown", agent_id=None)
            assert answer["policy_name"] == "evaluation_error"
            if fault is signal.SIGKILL:
                control.server.start()
                control.rebuild()
            else:
                control.server.signal(signal.SIGCONT)
            body = role_document([policy(allowed_sources=("rates",))])
            control.publish({role_name(ROLE): body})
            await caught_up(running, control)
            assert not await allowed(running)


async def test_sources_are_not_listed_while_a_document_they_need_is_missing(
    tmp_path: Path,
) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        other = make_key(b"o" * 32)
        control.publish(
            {key_name(key_digest(other)): key_document(Key("key_o", "evaluate", "agt"))}
        )
        async with running_sidecar(tmp_path, control) as running:
            control.feeds = False
            # The key is here now, and its agent was never asked for.
            assert not await allowed(running, key=other, agent_id=None)
            control.server.signal(signal.SIGKILL)
            answer = await running.call("GET", "/v1/sources", key=other)
            assert answer.status == 503
            assert (await running.call("GET", "/v1/sources")).status == 200


async def test_a_start_without_redis_uses_the_set_on_disk(tmp_path: Path) -> None:
    clock = FakeClock()
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, clock=clock) as running:
            assert await allowed(running)
        control.server.signal(signal.SIGKILL)
        async with running_sidecar(tmp_path, control, clock=clock) as running:
            assert await allowed(running)
            clock.ahead = 31.0
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"


async def test_a_revoked_sidecar_decides_no_more(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            assert await allowed(running)
            control.publish({key_name(key_digest(SIDECAR_KEY)): None})
            await until_async(
                "it is barred", lambda: "policy_set" in running.parts.readiness.problems()
            )
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"


async def test_a_deactivated_tenant_s_sidecar_denies_until_it_is_active_again(
    tmp_path: Path,
) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            assert await allowed(running)
            for active in (False, True):
                tenant = TenantSettings("default", active=active)
                control.publish({TENANT: tenant_document(tenant)})
                await until_async(
                    "it follows",
                    lambda active=active: (  # type: ignore[misc]
                        active is not ("policy_set" in running.parts.readiness.problems())
                    ),
                )
                answer = await running.evaluate()
                assert (answer["decision"] == "ALLOW") is active
                assert active or "deactivated" in answer["reason"]


async def test_a_published_claim_needs_no_request(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        claim = Claim(control.tenant_id, control.epoch, "s-1", "active", ROLE, AGENT, FAR)
        forged = Claim(control.tenant_id, control.epoch, "s-2", "active", ROLE, AGENT, FAR)
        other = Claim(control.tenant_id, "epoch-0", "s-3", "active", ROLE, AGENT, FAR)
        for each, signer in (
            (claim, control.signer),
            (forged, Signer.generate()),
            (other, control.signer),
        ):
            key = session_key(control.tenant_id, each.session_id)
            control.redis.hset(key, mapping={"c": each.sealed(signer), "rank": 1})
        async with running_sidecar(tmp_path, control) as running:
            for name in ("s-1", "s-2", "s-3"):
                assert await allowed(running, session_id=name)
            assert [claim["session_id"] for claim in control.claims] == ["s-2", "s-3"]


async def test_a_session_is_not_assumed_active_because_redis_has_no_document(
    tmp_path: Path,
) -> None:
    """Its revocation is a document; that there is none has to be proven."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        revoked = session_name("s-1")
        control.publish({revoked: session_document("s-1")})
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            control.feeds = False
            control.redis.hdel(set_key(control.tenant_id), document_field(revoked))
            assert (await running.evaluate(session_id="s-1"))["policy_name"] == "evaluation_error"
            _, bucket = path(revoked)
            control.redis.hdel(set_key(control.tenant_id), b"n/" + bucket.encode())
            assert (await running.evaluate(session_id="s-1"))["policy_name"] == "evaluation_error"
            control.rebuild()
            assert (await running.evaluate(session_id="s-1"))["policy_name"] == "session_revoked"


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_turns.py::test_concurrent_lookups_are_combined_into_one_read"
)
async def test_lookups_of_tried_keys_are_combined(tmp_path: Path) -> None:
    """Looked up one by one, they would delay a revocation."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            before = reads(control)
            tried = [make_key(n.to_bytes(32)) for n in range(200)]
            answers = await asyncio.gather(
                *(running.call("POST", EVALUATE, b"{}", key=key) for key in tried)
            )
            assert {answer.status for answer in answers} == {403}
            assert reads(control) - before < 50


def reads(control: FakeControlApiWithRedis) -> int:
    stats: dict[str, dict[str, int]] = control.redis.info("commandstats")
    return stats["cmdstat_hmget"]["calls"]
