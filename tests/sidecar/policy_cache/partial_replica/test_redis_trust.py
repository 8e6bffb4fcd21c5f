"""A policy set through a Redis under an attacker's control: what is not signed is not trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.ground.signing import Endorsement, Signer
from policies.sets.merkle_map import path
from policies.sets.policy_set import role_document, role_name
from policies.sets.redis_keys import HEAD, changes_key, document_field, doubts_key, set_key
from sidecar.policy_cache.partial_replica.redis_reader import MAX_UNVERIFIED_BYTES
from tests.sidecar.policy_cache.partial_replica.redis_set import (
    LIMIT,
    allowed,
    caught_up,
    fake_control_api_with_redis,
    revision,
)
from tests.support import redis, waiting
from tests.support.fake_control_api import ROLE, policy
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.sidecar import FakeClock, running_sidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis


@pytest.mark.parametrize("what", ["body", "bucket", "branch", "root"])
async def test_data_written_by_an_attacker_is_not_trusted(tmp_path: Path, what: str) -> None:
    """A role that allows more, in place of the one that was signed."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        role = "role-1"
        narrow, wide = (
            role_document([policy(agent_role=role, allowed_sources=sources)])
            for sources in (("rates",), ("*",))
        )
        assert wide is not None
        control.publish({role_name(role): narrow})
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            control.feeds = False
            branch, bucket = path(role_name(role))
            field = {
                "body": document_field(role_name(role)),
                "bucket": b"n/" + bucket.encode(),
                "branch": b"n/" + branch.encode(),
                "root": b"n/root",
            }[what]
            control.redis.hset(set_key(control.tenant_id), field, wide)
            answer = await running.evaluate(agent_role=role, agent_id=None)
            assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
            await until_async("the damage is reported", lambda: field.decode() in control.missing())
            await until_async(
                "a challenge says so", lambda: any(b"m" in each for each in control.challenges)
            )
            # Sidecars of other tenants read this stream too.
            shared = {key: each[key] for each in control.challenges for key in each if key != b"n"}
            assert shared == {b"t": control.tenant_id.encode(), b"m": b"1"}
            control.rebuild()
            answer = await running.evaluate(agent_role=role, agent_id=None)
            assert answer["policy_name"] == "underwriting"


async def test_a_damage_report_that_fails_does_not_delay_a_challenge(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            control.feeds = False
            control.redis.set(doubts_key(control.tenant_id), "no stream")
            control.redis.hdel(set_key(control.tenant_id), "n/root")
            answer = await running.evaluate(agent_role="unknown", agent_id=None)
            assert answer["policy_name"] == "evaluation_error"
            await until_async(
                "the damage is reported", lambda: any(b"m" in e for e in control.challenges)
            )


async def test_an_older_document_in_place_of_the_newest_is_noticed(tmp_path: Path) -> None:
    """Signed it was, once: document, bucket and branch, but not under this head."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        role = "role-1"
        control.publish({role_name(role): role_document([policy(agent_role=role)])})
        former: dict[Any, Any] = control.redis.hgetall(set_key(control.tenant_id))
        control.publish({role_name(role): None})
        async with running_sidecar(tmp_path, control) as running:
            control.feeds = False
            mixed: dict[Any, Any] = {f: body for f, body in former.items() if f != HEAD}
            control.redis.hset(set_key(control.tenant_id), mapping=mixed)
            answer = await running.evaluate(agent_role=role, agent_id=None)
            assert answer["policy_name"] == "evaluation_error"


async def test_an_older_set_as_a_whole_is_refused_and_grows_stale(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        former: dict[Any, Any] = control.redis.hgetall(set_key(control.tenant_id))
        clock = FakeClock()
        async with running_sidecar(tmp_path, control, clock=clock, staleness_seconds=60) as running:
            control.feeds = False
            control.publish({role_name(ROLE): None})
            await caught_up(running, control)
            assert (await running.evaluate())["policy_name"] == "default_deny"
            control.redis.delete(set_key(control.tenant_id))
            control.redis.hset(set_key(control.tenant_id), mapping=former)
            control.beats = False
            assert (await running.evaluate())["policy_name"] == "default_deny"
            # What it does not hold it can't have either: the head is older than what was seen.
            answer = await running.evaluate(agent_role="another", agent_id=None)
            assert answer["policy_name"] == "evaluation_error"
            clock.ahead += 61
            await until_async(
                "it is stale", lambda: "policy_set" in running.parts.readiness.problems()
            )
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"


async def test_a_new_sidecar_takes_no_replayed_set(tmp_path: Path) -> None:
    """All of it is signed, but old: no heartbeat answers the challenge."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        control.beats = False
        async with running_sidecar(tmp_path, control, synced=False) as running:
            await until_async("the set is here", lambda: revision(running) == control.revision)
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"
            control.beats = True
            await until_async("it is confirmed", lambda: not running.parts.readiness.problems())
            assert await allowed(running)


async def test_heartbeats_for_other_sidecars_confirm_nothing(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        control.beats = False
        async with running_sidecar(tmp_path, control, synced=False) as running:
            await until_async("it challenges", lambda: control.challenges)
            nonce = control.challenges[0][b"n"].decode()
            control.beats = True
            real, control.beats = control.beats, False
            assert real
            forger = FakeControlApiWithRedis(control.server)
            forger.revision, forger.epoch = control.revision, control.epoch
            forger.answer([nonce])  # by another key
            control.signer, own = Signer.generate(), control.signer
            control.signer = own
            control.beats = True
            control.answer(["bm90IG91cnM="])  # another's nonce
            control.tenant_id = "ten_other"
            control.answer([nonce])  # of another tenant, on its own stream
            control.tenant_id = "default"
            control.beats = False

            async def forged() -> bool:
                return await running.metric("sluice_policy_set_forged_total") >= 1

            await waiting.until_async("the forger's answer is refused", forged)
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"


async def test_a_key_that_the_control_api_endorses_is_no_forgery_and_any_other_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.policy_cache.partial_replica.redis_loop.KEY_INTERVAL", 0.01)
    monkeypatch.setattr("sidecar.policy_cache.partial_replica.redis_loop.PAUSE_SECONDS", 0.0)
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            follower = running.parts.follower
            successor = Signer.generate()
            control.endorsements = [Endorsement.by(control.signer, successor.public)]
            # Its heartbeats and heads reach the sidecar while the control API says nothing.
            control.feeds, control.signer = False, successor
            control.publish({role_name(ROLE): None})
            await until_async("it asks", lambda: "can't ask the control API who" in caplog.text)
            assert revision(running) < control.revision
            assert follower.forged == 0
            # No key could have signed this one, whatever the control API will say.
            large = bytes(MAX_UNVERIFIED_BYTES + 1)
            control.redis.xadd(changes_key(control.tenant_id), {"h": large})
            size = f"{len(large)} bytes: none is over {MAX_UNVERIFIED_BYTES}"
            told = f"a head of tenant `default`, {size}"
            await until_async("it is told", lambda: told in caplog.text)
            assert follower.forged == 1
            control.feeds = True
            await caught_up(running, control)
            assert follower.forged == 1
            foreign = control.head(0, None).sealed(Signer.generate())
            control.redis.xadd(changes_key(control.tenant_id), {"h": foreign})
            await until_async("it counts", lambda: follower.forged == 2)
            assert caplog.text.count("Redis holds what Sluice has not signed") == 2
            assert f"a head of tenant `default`, {len(foreign)} bytes" in caplog.text


async def test_withheld_news_makes_the_set_stale(tmp_path: Path) -> None:
    """The store has moved on, as the heartbeats say; what they speak of does not come."""
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        clock = FakeClock()
        async with running_sidecar(tmp_path, control, clock=clock, staleness_seconds=30) as running:
            control.feeds = False
            control.pushes = False
            control.publish({role_name(ROLE): None})
            clock.ahead += 31
            await until_async(
                "it is stale", lambda: "policy_set" in running.parts.readiness.problems()
            )
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"
            control.rebuild()
            await until_async("it is well again", lambda: not running.parts.readiness.problems())
            assert (await running.evaluate())["policy_name"] == "default_deny"


async def test_a_restored_older_store_is_refused(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            control.revision -= 2
            follower = running.parts.follower
            await until_async("it is refused", lambda: follower.refused is not None)
            assert "is older than" in str(follower.refused)
            control.revision += 2
            await until_async("it is well again", lambda: follower.refused is None)


async def test_garbage_on_the_streams_is_skipped(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
            for field in ("h", "b", "x"):
                control.redis.xadd(changes_key(control.tenant_id), {field: b"\xff" * 100})
            control.publish({role_name(ROLE): None})
            await caught_up(running, control)
            assert (await running.evaluate())["policy_name"] == "default_deny"


async def test_a_set_of_another_kind_is_an_error_and_no_more(tmp_path: Path) -> None:
    async with fake_control_api_with_redis(tmp_path) as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=30) as running:
            control.feeds = False
            control.redis.set(set_key(control.tenant_id), "rubbish")
            answer = await running.evaluate(agent_role="unknown", agent_id=None)
            assert answer["policy_name"] == "evaluation_error"
            control.rebuild()
            answer = await running.evaluate(agent_role="unknown", agent_id=None)
            assert answer["policy_name"] == "default_deny"
