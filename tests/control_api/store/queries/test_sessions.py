"""A session belongs to its first claimant until it ends, and can never be claimed again."""

from __future__ import annotations

import asyncio

import pytest

from control_api.store.counters.counters import MINUTE
from control_api.store.queries.session_rows import SessionClaimer, SessionRow, find
from tests.support.open_store import OTHER, TENANT, OpenStore, opened
from tests.support.properties import chance


async def claim(
    sessions: SessionClaimer,
    session_id: str = "s-1",
    role: str = "support",
    agent: str | None = "agt_1",
    *,
    tenant_id: str = TENANT,
    ttl: int = 10,
    now: int = 0,
) -> SessionRow:
    return await sessions.claim(tenant_id, session_id, role, agent, "u-1", ttl, now)


async def test_the_first_claim_creates_the_session(world: OpenStore) -> None:
    row = await claim(SessionClaimer(world.store), ttl=10, now=7)
    assert row == SessionRow("s-1", "support", "agt_1", "u-1", 7, 7 + 10 * MINUTE, None, None)
    assert row.at(7).state == "active"
    async with world.store.reading(TENANT) as connection:
        assert await find(connection, TENANT, "s-1") == row
        assert await find(connection, OTHER, "s-1") is None


async def test_one_of_many_concurrent_claims_owns_the_session(world: OpenStore) -> None:
    sessions, draw = [SessionClaimer(world.store) for _ in range(4)], chance("claims")
    rows = await asyncio.gather(
        *(claim(draw.choice(sessions), agent=f"agt_{n}", now=n) for n in range(64))
    )
    assert len(set(rows)) == 1


@pytest.mark.deep(stands_in="test_one_of_many_concurrent_claims_owns_the_session")
async def test_two_replicas_agree_on_the_owner(postgresql_url: str) -> None:
    async with opened(postgresql_url) as one, opened(postgresql_url) as two:
        both = [SessionClaimer(one.store), SessionClaimer(two.store)]
        for number in range(10):
            rows = await asyncio.gather(
                *(claim(both[n % 2], f"s-{number}-{n % 5}", agent=f"agt_{n}") for n in range(40))
            )
            assert len(set(rows)) == 5


async def test_a_later_claim_changes_nothing(world: OpenStore) -> None:
    sessions = SessionClaimer(world.store)
    first = await claim(sessions, ttl=10, now=0)
    assert await claim(sessions, role="other", agent=None, ttl=999, now=5) == first


async def test_an_expired_session_stays_expired(world: OpenStore) -> None:
    sessions = SessionClaimer(world.store)
    end = (await claim(sessions, ttl=10)).expires_at
    assert (await claim(sessions, now=end - 1)).state(end - 1) == "active"
    for later in (end, end + 1, end + 1000 * MINUTE):
        assert (await claim(sessions, now=later)).state(later) == "expired"


async def test_a_revoked_session_stays_revoked(world: OpenStore) -> None:
    sessions = SessionClaimer(world.store)
    await claim(sessions)
    await world.rows("UPDATE sessions SET revoked_at = 5, revocation_reason = 'stolen'")
    for now in (0, 5, 1000 * MINUTE):
        row = await claim(sessions, now=now)
        assert row.at(now).state == "revoked"
        assert row.revocation_reason == "stolen"


async def test_each_tenant_has_sessions_of_its_own(world: OpenStore) -> None:
    sessions = SessionClaimer(world.store)
    mine, theirs = await asyncio.gather(
        claim(sessions, agent="agt_1"), claim(sessions, agent="agt_2", tenant_id=OTHER)
    )
    assert (mine.agent_id, theirs.agent_id) == ("agt_1", "agt_2")


@pytest.mark.parametrize("session_id", ["x" * 256, "é/%2F", "😀" * 64, "'; DROP TABLE sessions"])
async def test_an_id_is_kept_byte_for_byte(world: OpenStore, session_id: str) -> None:
    assert (await claim(SessionClaimer(world.store), session_id)).session_id == session_id
