"""A sidecar whose Redis is away follows the control API's long poll, and returns. Whatever fails in
between, no older set comes into force, and the set's age counts over both sources."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from policies.definitions.model import Key
from policies.ground.keys import key_digest, make_key
from policies.ground.signing import Signer
from policies.sets.policy_set import (
    key_document,
    key_name,
    role_document,
    role_name,
    session_document,
    session_name,
)
from policies.sets.redis_keys import set_key
from sidecar.policy_cache.partial_replica import failover
from tests.support import redis, waiting
from tests.support.fake_control_api import (
    EVALUATE_KEY,
    ROLE,
    SIDECAR_KEY,
    FakeControlApi,
    many_roles,
    policy,
)
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.redis import running_redis
from tests.support.sidecar import EVALUATE, FakeClock, RunningSidecar, running_sidecar
from tests.support.waiting import until_async

pytestmark = redis.needs_redis

LIMIT = 6.0
"""Half of it is how long Redis may be silent."""


@asynccontextmanager
async def away(
    tmp_path: Path, *, clock: FakeClock | None = None, lost: bool = True, met: bool = True
) -> AsyncIterator[tuple[FakeControlApiWithRedis, RunningSidecar]]:
    """A sidecar that has followed Redis, and with `lost` the control API since; without `met`, the
    control API alone."""
    with running_redis(tmp_path / "redis") as server:
        control = FakeControlApiWithRedis(server)
        await control.start()
        control.create_tenant()
        if not met:
            control.pushes = False
            server.signal(signal.SIGKILL)
        try:
            async with running_sidecar(
                tmp_path, control, clock=clock, staleness_seconds=LIMIT
            ) as running:
                if lost and met:
                    control.pushes = False
                    server.signal(signal.SIGKILL)
                    await follows(running, "control")
                yield control, running
        finally:
            await control.stop()


async def follows(running: RunningSidecar, feed: str) -> None:
    await until_async(f"it follows {feed}", lambda: running.parts.follower.feed == feed)


async def back(control: FakeControlApiWithRedis) -> None:
    control.server.start()
    control.rebuild()
    control.pushes = True


async def in_force(running: RunningSidecar, control: FakeControlApiWithRedis) -> None:
    await until_async("it is in force", lambda: revision(running) == control.revision)


def revision(running: RunningSidecar) -> int:
    return running.parts.replica.policy_set.revision


async def allowed(running: RunningSidecar, **changed: object) -> bool:
    return bool((await running.evaluate(**changed))["decision"] == "ALLOW")  # type: ignore[arg-type]


async def decides(running: RunningSidecar, *, allow: bool) -> None:
    """What the newest set says: a stall of the machine may make it stale for a while."""

    async def said() -> bool:
        found = await running.evaluate()
        stale = found["policy_name"] == "policy_set_stale"
        assert stale or found["decision"] == ("ALLOW" if allow else "DENY")
        return not stale

    await waiting.until_async("the newest set decides", said)


KILL, STOP = signal.SIGKILL, signal.SIGSTOP


def refuses(control: FakeControlApiWithRedis) -> None:
    control.redis.execute_command("ACL", "SETUSER", "default", "-xread", "-xadd", "-hmget")


def flushes_for_good(control: FakeControlApiWithRedis) -> None:
    control.pushes = control.beats = False
    control.redis.flushall()


FAULTS: dict[
    str, tuple[Callable[[FakeControlApiWithRedis], None], Callable[[FakeControlApiWithRedis], None]]
] = {
    "killed": (lambda c: c.server.signal(KILL), lambda c: c.server.start()),
    "hangs": (lambda c: c.server.signal(STOP), lambda c: c.server.signal(signal.SIGCONT)),
    "refuses": (refuses, lambda c: c.redis.execute_command("ACL", "SETUSER", "default", "+@all")),
    "flushed": (flushes_for_good, lambda c: None),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_decisions_and_revocations_continue_without_redis(tmp_path: Path, fault: str) -> None:
    breaks, mends = FAULTS[fault]
    clock = FakeClock()
    async with away(tmp_path, clock=clock, lost=False) as (control, running):
        assert await allowed(running)
        control.publish(dict(many_roles(20)))
        breaks(control)
        control.pushes = False
        # From the first failure on: a document and a session that it has not seen yet.
        assert await allowed(running, agent_role="role-3", agent_id=None)
        assert await allowed(running, session_id="s-1")
        await follows(running, "control")
        assert await running.metric('sluice_policy_feed{feed="control"}') == 1
        assert await running.metric('sluice_policy_feed{feed="redis"}') == 0
        ready = await running.call("GET", "/health/ready", key=None)
        assert orjson.loads(ready.body)["policy_feed"] == "control"
        # Longer than the limit: fresh by the control API alone.
        clock.ahead += LIMIT
        await until_async("it is confirmed", lambda: not running.parts.readiness.problems())
        assert await allowed(running, agent_role="role-4", agent_id=None)
        control.publish({session_name("s-1"): session_document("s-1")})
        await in_force(running, control)
        assert (await running.evaluate(session_id="s-1"))["policy_name"] == "session_revoked"
        assert (await running.evaluate(session_id="s-2"))["decision"] == "ALLOW"
        control.publish({role_name("role-3"): None, key_name(key_digest(EVALUATE_KEY)): None})
        await in_force(running, control)
        assert (await running.call("POST", EVALUATE, b"{}")).status == 403
        mends(control)
        control.beats = True
        control.rebuild()
        control.pushes = True
        await follows(running, "redis")
        assert {*running.parts.readiness.problems()} == {"agent_key"}  # it was revoked
        control.publish({key_name(key_digest(EVALUATE_KEY)): key_document(Key("k", "evaluate"))})
        await in_force(running, control)
        answer = await running.evaluate(agent_role="role-3", agent_id=None)
        assert answer["policy_name"] == "default_deny"


@pytest.mark.deep(stands_in="test_a_set_of_another_store_replaces_everything")
async def test_a_sidecar_starts_without_redis(tmp_path: Path) -> None:
    with running_redis(tmp_path / "redis") as server:
        control = FakeControlApiWithRedis(server)
        await control.start()
        control.create_tenant()
        control.publish(dict(many_roles(600)))
        server.signal(signal.SIGKILL)
        try:
            async with running_sidecar(tmp_path, control, staleness_seconds=LIMIT) as running:
                assert running.parts.follower.feed == "control"
                assert await allowed(running)
                assert await allowed(running, agent_role="role-599", agent_id=None)
                # Only what is used is fetched.
                assert sum(map(len, control.looked_up)) < 20
                await back(control)
                await follows(running, "redis")
        finally:
            await control.stop()


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_never_met_redis.py::test_a_sidecar_that_never_met_redis_follows_the_control_api_in_everything"
)
async def test_unknown_keys_are_refused_and_known_ones_accepted_without_redis(
    tmp_path: Path,
) -> None:
    async with away(tmp_path) as (control, running):
        made = make_key(b"m" * 32)
        control.publish({key_name(key_digest(made)): key_document(Key("key_m", "evaluate"))})
        assert await allowed(running, key=made)
        strange = [make_key(n.to_bytes(32)) for n in range(100)]
        before = len(control.looked_up)
        answers = await asyncio.gather(
            *(running.call("POST", EVALUATE, b"{}", key=key) for key in strange)
        )
        assert {answer.status for answer in answers} == {403}
        assert len(control.looked_up) - before < 20


async def test_an_older_redis_is_not_returned_to(tmp_path: Path) -> None:
    """It came back from a dump, whose every word is signed; heartbeats say nothing of its age."""
    async with away(tmp_path) as (control, running):
        control.server.start()
        control.rebuild()
        former = control.redis.hgetall(set_key(control.tenant_id))
        control.server.signal(KILL)
        control.publish({role_name(ROLE): role_document([policy(allowed_sources=("rates",))])})
        await in_force(running, control)
        control.server.start()
        control.redis.hset(set_key(control.tenant_id), mapping=former)
        await until_async("it is challenged again", lambda: len(control.challenges) > 3)
        assert running.parts.follower.feed == "control"
        assert revision(running) == control.revision
        assert not await allowed(running)
        control.rebuild()
        await follows(running, "redis")
        assert not await allowed(running)
        # Nor does it stay there: the next time it is away, the control API is followed again.
        control.server.signal(KILL)
        control.publish({role_name(ROLE): role_document([policy(version=3)])})
        await in_force(running, control)
        assert await allowed(running)


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_control_loop.py::test_a_late_or_failed_answer_confirms_nothing"
)
async def test_the_set_becomes_stale_without_either_feed_and_either_refreshes_it(
    tmp_path: Path,
) -> None:
    for first in ("redis", "control"):
        async with away(tmp_path / first) as (control, running):
            assert await allowed(running)
            await FakeControlApi.stop(control)
            await until_async(
                "it is stale", lambda: "policy_set" in running.parts.readiness.problems()
            )
            assert (await running.evaluate())["policy_name"] == "policy_set_stale"
            if first == "redis":
                await back(control)
            else:
                await FakeControlApi.start(control)
            await until_async("it is well again", lambda: not running.parts.readiness.problems())
            await follows(running, first)
            assert await allowed(running)


@pytest.mark.deep(stands_in="test_an_older_redis_is_not_returned_to")
async def test_alternating_feeds_never_lead_to_an_older_revision(tmp_path: Path) -> None:
    async with away(tmp_path, lost=False) as (control, running):
        for number in range(6):
            control.server.signal(STOP if number % 2 == 0 else KILL)
            control.pushes = False
            sources = ("contracts",) if number % 2 else ("rates",)
            body = role_document([policy(allowed_sources=sources, version=number + 2)])
            control.publish({role_name(ROLE): body})
            seen = revision(running)
            await in_force(running, control)
            assert revision(running) > seen
            await decides(running, allow=number % 2 == 1)
            if number % 2 == 0:
                control.server.signal(signal.SIGCONT)
                control.rebuild()
                control.pushes = True
            else:
                await back(control)
            await asyncio.sleep(0.3 * number)  # an older revision would come now
            await decides(running, allow=number % 2 == 1)
        await follows(running, "redis")


async def test_an_older_set_is_refused_from_the_control_api_too(tmp_path: Path) -> None:
    async with away(tmp_path) as (control, running):
        control.publish({role_name(ROLE): role_document([policy(allowed_sources=("rates",))])})
        await in_force(running, control)
        seen = revision(running)
        control.revision -= 2
        control.documents.clear()
        await until_async("it is refused", lambda: running.parts.follower.refused is not None)
        assert "is older than" in str(running.parts.follower.refused)
        assert revision(running) == seen
        control.revision = seen


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_control_loop.py::test_an_answer_of_another_tenant_or_signer_is_refused"
)
@pytest.mark.parametrize("what", ["tenant", "key"])
async def test_another_tenant_s_or_signer_s_answer_is_refused(tmp_path: Path, what: str) -> None:
    async with away(tmp_path) as (control, running):
        assert await allowed(running)  # what this needs is held from now on
        if what == "tenant":
            control.tenant_id = "ten_other"
        else:
            control.signer = Signer.generate()
        control.publish({role_name(ROLE): None})
        await until_async("it is refused", lambda: running.parts.follower.refused is not None)
        assert await allowed(running)

        async def stale() -> bool:
            return bool((await running.evaluate())["policy_name"] == "policy_set_stale")

        await waiting.until_async("it is stale", stale)


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_control_loop.py::test_a_body_that_is_not_its_digest_s_is_neither_kept_nor_followed"
)
async def test_a_body_that_is_not_its_digest_s_is_not_kept(tmp_path: Path) -> None:
    async with away(tmp_path) as (control, running):
        wide = role_document([policy(agent_role="role-1", allowed_sources=("*",))])
        assert wide is not None
        control.publish({role_name("role-1"): role_document([policy(agent_role="role-1")])})
        await in_force(running, control)

        def tamper(answer: dict[str, object]) -> None:
            for document in answer["documents"]:  # type: ignore[attr-defined]
                document["body"] = wide.decode()

        control.tamper = tamper
        answer = await running.evaluate(agent_role="role-1", agent_id=None)
        assert answer["policy_name"] == "evaluation_error"
        control.tamper = None
        answer = await running.evaluate(agent_role="role-1", agent_id=None, source_id="payroll")
        assert answer["decision"] == "DENY"


async def test_a_set_of_another_store_replaces_everything(tmp_path: Path) -> None:
    async with away(tmp_path) as (control, running):
        control.epoch, control.revision, control.documents, control.nodes = "epoch-2", 0, {}, {}
        control.create_tenant(policy(allowed_sources=("rates",)))
        await until_async("it is in force", lambda: running.parts.replica.epoch() == "epoch-2")
        await until_async("it is confirmed", lambda: not running.parts.readiness.problems())
        assert not await allowed(running)
        assert await allowed(running, source_id="rates")


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_control_loop.py::test_more_changes_than_a_page_holds_leave_nothing_old"
)
async def test_more_changes_than_a_page_holds_leave_nothing_old(tmp_path: Path) -> None:
    async with away(tmp_path) as (control, running):
        assert not await allowed(running, agent_role="role-7", agent_id=None)
        control.page = 5
        control.publish(dict(many_roles(40)))
        await in_force(running, control)
        assert await allowed(running, agent_role="role-7", agent_id=None)
        assert await allowed(running)


@pytest.mark.deep(
    stands_in="tests/sidecar/policy_cache/partial_replica/test_never_met_redis.py::test_a_sidecar_that_never_met_redis_follows_the_control_api_in_everything"
)
async def test_a_revoked_sidecar_decides_no_more(tmp_path: Path) -> None:
    async with away(tmp_path) as (control, running):
        assert await allowed(running)
        control.publish({key_name(key_digest(SIDECAR_KEY)): None})
        await until_async(
            "it is barred", lambda: "policy_set" in running.parts.readiness.problems()
        )
        assert (await running.evaluate())["policy_name"] == "policy_set_stale"


def test_a_fleet_that_loses_its_redis_spreads_its_switch_to_the_control_api() -> None:
    waits = [failover.away_after(30.0, at / 49) for at in range(50)]
    assert (waits[0], waits[-1]) == (5.0, 6.0)
    assert len({round(wait, 2) for wait in waits}) == 50
    # Where little staleness is allowed, the control API is followed before the limit.
    assert failover.away_after(1.0, 1.0) < 1.0
