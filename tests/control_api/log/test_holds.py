"""Legal holds: retention stops before the first entry that one covers."""

from __future__ import annotations

from typing import Any

import pytest

from control_api.log.purge_plan import before_held
from control_api.sessions.ending import purge_sessions
from control_api.store.queries.session_rows import SessionClaimer
from control_api.store.transaction import Transaction
from tests.control_api.log.erasing import hold, release
from tests.control_api.log.purging import DAY, keep_days, purge, seqs, valid
from tests.support.open_store import TENANT, OpenStore, decision, event_id, sql


async def old_log(world: OpenStore, held_at: int, **held: Any) -> None:
    """Forty old decisions, of which the one at `held_at` has these fields, and a new one."""
    await keep_days(world, 1)
    for number in range(40):
        await world.log.append(TENANT, decision(**(held if number == held_at else {})))
    world.now.ahead += 2 * DAY
    await world.log.append(TENANT, decision())


@pytest.mark.deep(
    stands_in="test_the_first_entry_that_a_hold_covers_is_found_in_and_behind_the_index"
)
@pytest.mark.parametrize(
    ("object_type", "field"),
    [("session", "session_id"), ("agent", "agent_id"), ("user", "user_id")],
)
@pytest.mark.parametrize("held_at", [3, 30, 38], ids=["indexed", "in some", "not yet indexed"])
async def test_retention_stops_before_what_is_held(
    world: OpenStore, small_steps: None, object_type: str, field: str, held_at: int
) -> None:
    await old_log(world, held_at, **{field: "held-1"})
    hold_id = await hold(world, object_type, "held-1")
    assert (await purge(world).run(TENANT)).removed == held_at
    assert (await seqs(world))[0] == held_at
    await valid(world)
    # Another run finds nothing more to remove, and adds no entry.
    size = len(await seqs(world))
    assert (await purge(world).run(TENANT)).removed == 0
    assert len(await seqs(world)) == size
    await release(world, hold_id)
    assert (await purge(world).run(TENANT)).removed == 40 - held_at
    await valid(world)


@pytest.mark.deep(
    stands_in="test_the_first_entry_that_a_hold_covers_is_found_in_and_behind_the_index"
)
async def test_a_hold_on_a_masked_user_keeps_what_its_mask_names(world: OpenStore) -> None:
    await old_log(world, 5, user_id="[EMAIL]")
    await hold(world, "user", "ann@example.com")
    assert (await purge(world).run(TENANT)).removed == 5


async def test_a_hold_placed_while_the_prefix_is_verified_keeps_it(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_log(world, 3, session_id="held-1")
    write, placed = world.store.write, False

    async def hold_first(tenant_id: str, work: Any) -> Any:
        nonlocal placed
        if not placed:
            placed = True
            await hold(world, "session", "held-1")
        return await write(tenant_id, work)

    monkeypatch.setattr(world.store, "write", hold_first)
    assert (await purge(world).run(TENANT)).removed == 0
    assert (await purge(world).run(TENANT)).removed == 3
    await valid(world)


async def test_the_first_entry_that_a_hold_covers_is_found_in_and_behind_the_index(
    world: OpenStore, small_steps: None
) -> None:
    held = {
        3: ("session", "session_id", "s", "s"),
        12: ("user", "user_id", "[EMAIL]", "ann@example.com"),
        21: ("agent", "agent_id", "a", "a"),
        30: ("session", "session_id", "s-30", "s-30"),  # as far as other facets' indexes reach
        38: ("session", "session_id", "late", "late"),
    }
    await keep_days(world, 1)
    for number in range(40):
        _, field, value, _ = held.get(number, ("", "user_id", "u", ""))
        await world.log.append(TENANT, decision(**{field: value}))
    world.now.ahead += 2 * DAY
    await world.log.append(TENANT, decision())
    for number, (object_type, _, _, object_id) in held.items():
        hold_id = await hold(world, object_type, object_id)
        size = len(await seqs(world))
        async with world.store.reading(TENANT) as connection:
            assert await before_held(connection, TENANT, range(40), size) == number
        await release(world, hold_id)
    # Retention asks for it.
    for number in (3, 12):
        _, _, _, object_id = held[number]
        hold_id = await hold(world, held[number][0], object_id)
        await purge(world).run(TENANT)
        assert (await seqs(world))[0] == number
        await release(world, hold_id)


async def test_a_held_session_keeps_its_row(world: OpenStore) -> None:
    async def keep(tx: Transaction) -> None:
        await sql_in(tx, "UPDATE tenants SET session_retention_days = 1")

    await world.store.write(TENANT, keep)
    for name, agent, user in (("s-1", None, "u-1"), ("s-2", "agt_1", "u-2"), ("s-3", None, "u-3")):
        await sql(
            world.url,
            "INSERT INTO sessions (tenant_id, session_id, agent_role, agent_id, user_id, "
            "created_at, expires_at) VALUES (:t, :s, 'support', :a, :u, 1, 2)",
            t=TENANT,
            s=name,
            a=agent,
            u=user,
        )
    await sql(world.url, "UPDATE sessions SET revoked_at = 2 WHERE session_id = 's-2'")
    holds = [await hold(world, "session", "s-1"), await hold(world, "agent", "agt_1")]
    assert await purge_sessions(world.store, TENANT, event_id) == 1
    for each in holds:
        await release(world, each)
    assert await purge_sessions(world.store, TENANT, event_id) == 2
    # Their ids are never free again.
    claimer, now = SessionClaimer(world.store), world.now()
    ended = {"s-1": "expired", "s-2": "revoked", "s-3": "expired"}
    for name, state in ended.items():
        row = await claimer.claim(TENANT, name, "support", None, "u-4", 30, now)
        assert (row.state(now), row.user_id) == (state, "")
    assert await world.rows("SELECT session_id FROM sessions") == []


async def sql_in(tx: Transaction, statement: str) -> None:
    await tx.connection.exec_driver_sql(statement)
