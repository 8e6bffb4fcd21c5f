"""How changes are found in the log."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from control_api.log.policy_set.changes import ChangeFilters, changes
from policies.trail.change import ObjectChange, change_record
from tests.support.open_store import OTHER, TENANT, OpenStore, decision, event_id


async def change(world: OpenStore, what: str, *, tenant: str = TENANT, **given: Any) -> None:
    detail = {"version": 2}
    record = change_record(what, "x", "key_1", detail, record_id=event_id(), **given)
    await world.log.append(tenant, record)


@pytest.mark.deep(stands_in="test_other_tenants_and_other_kinds_are_not_listed")
async def test_entries_of_an_older_version_show_null(world: OpenStore) -> None:
    await change(world, "policy.updated")
    await change(world, "agent.status", change=ObjectChange({"a": 1, "b": 2}, {"a": 1, "b": 3}))
    page = await changes(world.store, TENANT, ChangeFilters(), 10)
    new, old = page.changes
    assert (old.before, old.after) == (None, None)
    assert (new.before, new.after) == ({"b": 2}, {"b": 3})
    assert page.next is None


async def test_other_tenants_and_other_kinds_are_not_listed(world: OpenStore) -> None:
    await change(world, "agent.status", tenant=OTHER)
    await world.log.append(TENANT, decision())
    page = await changes(world.store, TENANT, ChangeFilters(), 10)
    assert page == ([], None)
    # Found by the index of rare kinds, whose condition the query repeats; of an older version's
    # entry nothing is shown.
    await change(world, "policy.updated")
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        page = await changes(world.store, TENANT, ChangeFilters(), 10)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert [(each.before, each.after) for each in page.changes] == [(None, None)]
    assert any("kind = 'change' AND kind NOT IN ('decision', 'lineage')" in each for each in sent)


@pytest.mark.deep(stands_in="test_other_tenants_and_other_kinds_are_not_listed")
async def test_the_index_of_rare_kinds_finds_them(world: OpenStore) -> None:
    await change(world, "agent.status")
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "FROM log_entries" in statement and "kind" in statement:
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        await changes(world.store, TENANT, ChangeFilters(), 10)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    [statement] = sent
    condition = "kind = 'change' AND kind NOT IN ('decision', 'lineage')"
    assert condition in statement
    plain = f"SELECT seq FROM log_entries WHERE tenant_id = 'default' AND {condition}"
    async with world.store.reading(TENANT) as connection:
        if connection.dialect.name == "sqlite":
            plan = await connection.execute(text(f"EXPLAIN QUERY PLAN {plain} ORDER BY seq DESC"))
        else:
            # Of a small table PostgreSQL would read every row.
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
            await connection.execute(text("SET LOCAL enable_bitmapscan = off"))
            plan = await connection.execute(text(f"EXPLAIN {plain} ORDER BY seq DESC"))
        assert "ix_log_entries_rare_kinds" in str(plan.all())
