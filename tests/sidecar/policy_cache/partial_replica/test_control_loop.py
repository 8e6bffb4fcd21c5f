"""What a partial replica takes from the control API while Redis is away, without either of them but
in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from policies.ground.signing import Signer
from policies.sets.policy_set import role_document, role_name
from sidecar.policy_cache.feed import FeedFailed, FeedRejected
from sidecar.policy_cache.policy_view import MissingDocument
from tests.sidecar.policy_cache.partial_replica.looking_replica import (
    REQUIRED,
    LookingReplica,
    looking_replica,
)
from tests.support.fake_control_api import (
    ROLE,
    FakeControlApi,
    fake_control_api,
    many_roles,
    policy,
)
from tests.support.waiting import until_async


@pytest.fixture
async def control() -> AsyncIterator[FakeControlApi]:
    async with fake_control_api() as made:
        made.create_tenant()
        yield made


@pytest.fixture
async def replica(tmp_path: Path, control: FakeControlApi) -> AsyncIterator[LookingReplica]:
    async with looking_replica(tmp_path, control) as made:
        yield made


async def test_a_replica_begins_with_the_documents_that_every_decision_needs(
    replica: LookingReplica, control: FakeControlApi
) -> None:
    control.publish(dict(many_roles(600)))
    assert replica.stale()
    await replica.sync()
    assert replica.names() == set(REQUIRED)
    assert replica.policy_set.revision == control.revision
    assert not replica.stale()
    # Only what is used is fetched.
    await replica.loop.fetch([role_name("role-599")])
    assert replica.names() == {*REQUIRED, role_name("role-599")}
    assert replica.policy_set.role("role-599") is not None
    assert sum(map(len, control.looked_up)) < 10


async def test_held_documents_change_with_the_set_and_no_others_are_fetched(
    replica: LookingReplica, control: FakeControlApi
) -> None:
    await replica.sync()
    await replica.loop.fetch([role_name(ROLE), role_name("role-1")])
    assert replica.policy_set.role("role-1") is None
    other = role_document([policy(allowed_sources=("rates",))])
    control.publish({**dict(many_roles(20)), role_name(ROLE): other})
    await replica.loop.step(0.0)
    assert replica.names() == {*REQUIRED, role_name(ROLE), role_name("role-1")}
    assert replica.policy_set.role("role-1") is not None
    role = replica.policy_set.role(ROLE)
    assert role is not None
    assert [clause.allowed_sources for clause in role.clauses] == [("rates",)]
    control.publish({role_name("role-1"): None})
    await replica.loop.step(0.0)
    assert replica.policy_set.role("role-1") is None


async def test_more_changes_than_a_page_holds_leave_nothing_old(
    replica: LookingReplica, control: FakeControlApi
) -> None:
    await replica.sync()
    await replica.loop.fetch([role_name("role-7")])
    assert replica.policy_set.role("role-7") is None
    control.page = 5
    control.publish(dict(many_roles(40)))
    await replica.sync()
    assert replica.policy_set.revision == control.revision
    with pytest.raises(MissingDocument):
        replica.policy_set.role("role-7")
    await replica.loop.fetch([role_name("role-7")])
    assert replica.policy_set.role("role-7") is not None


async def test_a_late_or_failed_answer_confirms_nothing(
    replica: LookingReplica, control: FakeControlApi
) -> None:
    await replica.sync()
    replica.clock.ahead += 61
    assert replica.stale()
    await control.stop()
    with pytest.raises(FeedFailed):
        await replica.loop.step(0.0)
    assert replica.stale()
    # The loop outlives it.
    running = asyncio.create_task(replica.loop.run())
    try:
        await until_async("it fails", lambda: replica.loop.failures)
        assert replica.stale()
        await control.start()
        await until_async("it is confirmed", lambda: not replica.stale())
        assert replica.loop.problem is None
    finally:
        running.cancel()


@pytest.mark.parametrize("what", ["tenant", "key"])
async def test_an_answer_of_another_tenant_or_signer_is_refused(
    replica: LookingReplica, control: FakeControlApi, what: str
) -> None:
    await replica.sync()
    revision = replica.policy_set.revision
    if what == "tenant":
        control.tenant_id = "ten_other"
    else:
        control.signer = Signer.generate()
    control.publish({role_name(ROLE): None})
    replica.clock.ahead += 61
    with pytest.raises(FeedRejected):
        await replica.loop.step(0.0)
    with pytest.raises(FeedRejected):
        await replica.loop.fetch([role_name(ROLE)])
    assert replica.policy_set.revision == revision
    assert replica.stale()


async def test_a_body_that_is_not_its_digest_s_is_neither_kept_nor_followed(
    replica: LookingReplica, control: FakeControlApi
) -> None:
    await replica.sync()
    wide = role_document([policy(agent_role="role-1", allowed_sources=("*",))])
    assert wide is not None

    def tamper(answer: dict[str, object]) -> None:
        for document in answer["documents"]:  # type: ignore[attr-defined]
            document["body"] = wide.decode()

    control.publish({role_name("role-1"): role_document([policy(agent_role="role-1")])})
    control.tamper = tamper
    with pytest.raises(FeedFailed):
        await replica.loop.fetch([role_name("role-1")])
    assert role_name("role-1") not in replica.names()
    control.tamper = None
    await replica.loop.fetch([role_name("role-1")])
    control.publish({role_name("role-1"): None})
    control.publish({role_name("role-1"): role_document([policy(agent_role="role-1", version=2)])})
    control.tamper = tamper
    with pytest.raises(FeedFailed):
        await replica.loop.step(0.0)
    role = replica.policy_set.role("role-1")
    assert role is not None
    assert all(clause.allowed_sources != ("*",) for clause in role.clauses)


async def test_a_set_by_which_this_sidecar_may_not_decide_is_not_confirmed(
    replica: LookingReplica,
) -> None:
    await replica.sync()
    replica.blocked = "the sidecar's key was revoked"
    with pytest.raises(FeedFailed, match="the sidecar's key was revoked"):
        await replica.loop.step(0.0)
    assert replica.stale()
    replica.blocked = None
    await replica.loop.step(0.0)
    assert not replica.stale()
