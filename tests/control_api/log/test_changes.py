"""How changes are found in the log."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from control_api.log import change_history as module
from control_api.log.change_history import ChangeFilters, changes
from policies.trail.change import ObjectChange, change_record
from policies.trail.checkpoint import accepted_incarnation_record
from policies.trail.record import incarnation_record
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
    # entry nothing is shown. An incarnation is a change of the log.
    await change(world, "policy.updated")
    await world.log.append(TENANT, incarnation_record(3, 5, 2, record_id=event_id()))
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        page = await changes(world.store, TENANT, ChangeFilters(), 10)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert [(each.object_type, each.before, each.after) for each in page.changes] == [
        ("log", {"revision": 5}, {"revision": 3, "out_of_force": 2}),
        ("policy", None, None),
    ]
    assert any("kind = 'change' AND kind NOT IN ('decision', 'lineage')" in each for each in sent)


@pytest.mark.deep(stands_in="test_other_tenants_and_other_kinds_are_not_listed")
async def test_an_incarnation_is_a_change_of_the_log(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROWS", 2)
    await change(world, "agent.status")
    accepted = accepted_incarnation_record("l", 1, None, "restored", record_id=event_id())
    await world.log.append(TENANT, accepted)
    await change(world, "policy.updated")
    await world.log.append(TENANT, incarnation_record(3, 5, 2, record_id=event_id()))
    page = await changes(world.store, TENANT, ChangeFilters(), 10)
    assert [(each.object_type, each.action, each.reason) for each in page.changes] == [
        ("log", "restored", "the store was put back"),
        ("policy", "updated", None),
        ("log", "incarnation_accepted", "restored"),
        ("agent", "status", None),
    ]
    back, _, accepted_as, _ = page.changes
    assert (back.before, back.after) == ({"revision": 5}, {"revision": 3, "out_of_force": 2})
    assert accepted_as.after == {"number": 1, "origin": "l#1"}
    assert {each.object_id for each in (back, accepted_as)} == {TENANT}
    for filters in (ChangeFilters(object_type="policy"), ChangeFilters(object_id="x")):
        page = await changes(world.store, TENANT, filters, 10)
        assert "log" not in {each.object_type for each in page.changes}
    page = await changes(world.store, TENANT, ChangeFilters(object_type="log"), 1)
    assert (len(page.changes), page.next) == (1, 3)


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
    statement, _ = sent  # and another for the `incarnation` entries
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
