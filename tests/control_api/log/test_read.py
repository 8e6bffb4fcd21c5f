"""Reads return exactly the events that match the filters, in order, page by page."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from control_api.audit.event_operations import event_filters
from control_api.audit.event_requests import EventValues
from control_api.log.ingest import ingest
from control_api.log.read import EventFilters, event, events, lineage, session_trail
from control_api.log.verify import verify
from control_api.store.log import index as log_index
from control_api.store.queries.session_rows import SessionClaimer
from policies.ground.canonical import micros, rfc3339
from policies.ground.errors import NotFound
from policies.trail.change import change_record
from tests.support import properties
from tests.support.open_store import (
    OTHER,
    TENANT,
    OpenStore,
    Spool,
    action,
    decision,
    event_id,
    opened,
)

HOUR = 3_600_000_000
Event = dict[str, Any]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a short log entries on both sides of every block boundary."""
    monkeypatch.setattr(log_index, "BLOCK", 64)
    monkeypatch.setattr(log_index, "STEP", 8)


async def everything(world: OpenStore, filters: EventFilters, limit: int = 1000) -> list[Event]:
    """All matching events, read page by page."""
    found: list[Event] = []
    before = None
    while True:
        trail = await events(world.store, TENANT, filters, limit, before)
        assert len(trail.events) <= limit
        found += trail.events
        before = trail.next
        if before is None:
            return found


async def varied(world: OpenStore, count: int, chance: random.Random) -> None:
    """Appends events of few roles, agents, sources, sessions and users among other entries, some of
    them delivered late by a sidecar."""
    spool = Spool()
    for number in range(count):
        record = decision(
            chance.choice(["ALLOW", "DENY"]),
            agent_role=chance.choice(["a", "b"]),
            agent_id=chance.choice([None, "agt_1", "agt_2"]),
            source_id=chance.choice(["s1", "s2", "s3"]),
            session_id=chance.choice([None, "one", "two"]),
            user_id=chance.choice(["u1", "u2", "u3"]),
            policy_name=chance.choice(["p1", "p2"]),
        )
        if chance.random() < 0.3:
            late = world.now() - chance.randrange(3 * HOUR)
            await ingest(world.store, TENANT, "sidecar-1", "i1", [spool.record(record, late)])
        else:
            placed = await world.log.append(TENANT, record)
            if chance.random() < 0.3:
                await world.log.append(TENANT, action(record.eid, placed.leaf_hash, number))
        world.now.ahead += HOUR // 60
    await world.log.append(OTHER, decision(agent_role="a"))


def matches(event: Event, filters: EventFilters) -> bool:
    for name in log_index.FACETS:
        wanted = getattr(filters, name)
        if wanted is not None and event[name] != wanted:
            return False
    at = micros(event["timestamp"])
    return (filters.since is None or at >= filters.since) and (
        filters.until is None or at < filters.until
    )


@pytest.mark.usefixtures("small_blocks")
async def test_filters_find_exactly_the_matching_events(world: OpenStore) -> None:
    draw = properties.chance("filters")
    start = world.now()
    await varied(world, 300, draw)
    listed = await everything(world, EventFilters())
    assert [event["seq"] for event in listed] == sorted(
        (event["seq"] for event in listed), reverse=True
    )
    assert len(listed) == 300
    choices: dict[str, list[Any]] = {
        "agent_role": ["a", "b", "none"],
        "agent_id": ["agt_1", "agt_2"],
        "source_id": ["s1", "s2", "s3"],
        "decision": ["ALLOW", "DENY"],
        "policy_name": ["p1", "p2"],
        "session_id": ["one", "two"],
        "user_id": ["u1", "u2", "u3"],
        "since": [start + hours * HOUR for hours in range(-3, 6)],
        "until": [start + hours * HOUR for hours in range(-3, 6)],
    }
    for _ in range(properties.few(150)):
        names = draw.sample(list(choices), draw.randrange(1, 4))
        values = {name: draw.choice(choices[name]) for name in names}
        times = [values.pop(name, None) for name in ("since", "until")]
        texts = [None if each is None else rfc3339(each) for each in times]
        filters = event_filters(EventValues(**values), *texts)
        assert filters == EventFilters(**values, since=times[0], until=times[1])
        expected = [event for event in listed if matches(event, filters)]
        found = await everything(world, filters, draw.choice([1, 7, 1000]))
        assert found == expected, filters
    at = micros(listed[100]["timestamp"])
    # An event of just that time is after the one, and not before the other.
    for filters in (EventFilters(since=at), EventFilters(until=at)):
        expected = [event for event in listed if matches(event, filters)]
        assert await everything(world, filters) == expected
    assert (await verify(world.store, TENANT))["valid"]


@pytest.mark.deep(stands_in="test_filters_find_exactly_the_matching_events")
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "filters",
    [
        EventFilters(),
        EventFilters(agent_role="a"),
        EventFilters(user_id="u"),
        EventFilters(since=1),
    ],
)
async def test_pages_neither_skip_nor_repeat_while_others_write(
    world: OpenStore, filters: EventFilters
) -> None:
    """The writers are this service, many at a time, and a sidecar that delivers old records."""
    asked = {"agent_role": "a", "user_id": "u"}
    for _ in range(20):
        await asyncio.gather(*(world.log.append(TENANT, decision(**asked)) for _ in range(10)))
    writing, spool = True, Spool()

    async def write() -> None:
        while writing:
            await world.log.append(TENANT, decision(**asked))

    async def deliver() -> None:
        while writing:
            late = world.now() - 3 * HOUR
            records = [spool.record(decision(**asked), late) for _ in range(30)]
            await ingest(world.store, TENANT, spool.source, spool.instance, records)

    writers = [asyncio.ensure_future(work()) for work in (write, write, write, deliver)]
    lists: list[list[Event]] = []
    while not lists or lists[-1][0]["seq"] < 260:  # until others have written some
        lists.append(await everything(world, filters, 7))
    writing = False
    await asyncio.gather(*writers)
    for found in lists:
        seqs = [event["seq"] for event in found]
        assert seqs == list(range(seqs[0], -1, -1))
        assert len({event["event_id"] for event in found}) == len(found)
    assert lists[0][0]["seq"] >= 199


async def test_an_event_shows_the_request_and_the_decision(world: OpenStore) -> None:
    record = decision("DENY", session_id="one", agent_id="agt_1", task_type="review", query="why?")
    placed = await world.log.append(TENANT, record)
    found = await event(world.store, TENANT, record.eid)
    assert found.leaf_hash == placed.leaf_hash
    shown = found.event
    assert shown["event_id"] == record.eid
    assert (shown["decision"], shown["policy_name"]) == ("DENY", "support-reads")
    assert (shown["user_id"], shown["query"]) == ("u-1", "why?")
    assert (shown["agent_id"], shown["session_id"]) == ("agt_1", "one")
    assert shown["hash"] == placed.leaf_hash.hex()
    assert (await events(world.store, TENANT, EventFilters(), 10)).events == [shown]


@pytest.mark.usefixtures("small_blocks")
async def test_a_session_is_shown_in_order_page_by_page(world: OpenStore) -> None:
    records = [decision(session_id=("one", "two", None)[number % 3]) for number in range(150)]
    placed = await asyncio.gather(*(world.log.append(TENANT, each) for each in records))
    written = sorted(each.seq for each in placed[::3])
    shown, after = [], -1
    while True:
        trail = await session_trail(world.store, TENANT, "one", 7, after)
        shown += [event["seq"] for event in trail.events]
        if trail.next is None:
            break
        after = trail.next
    assert shown == written


async def test_a_session_never_seen_is_not_found(world: OpenStore) -> None:
    with pytest.raises(NotFound):
        await session_trail(world.store, TENANT, "one", 10)
    await world.log.append(OTHER, decision(session_id="one"))
    with pytest.raises(NotFound):
        await session_trail(world.store, TENANT, "one", 10)
    # One that was claimed is there, though empty; and so is what follows its last event.
    sessions = SessionClaimer(world.store)
    await sessions.claim(TENANT, "one", "support", None, "u-1", 10, world.now())
    assert (await session_trail(world.store, TENANT, "one", 10)).events == []
    placed = await world.log.append(TENANT, decision(session_id="two"))
    assert (await session_trail(world.store, TENANT, "two", 10, placed.seq)).events == []


async def test_lineage_shows_an_event_and_its_actions_in_order(world: OpenStore) -> None:
    record, other = decision(), decision()
    placed = await world.log.append(TENANT, record)
    elsewhere = await world.log.append(TENANT, other)
    for number in range(3):
        await world.log.append(TENANT, action(record.eid, placed.leaf_hash, number))
        await world.log.append(TENANT, action(other.eid, elsewhere.leaf_hash, 10 + number))
    found, actions = await lineage(world.store, TENANT, record.eid, 3)
    assert found["event_id"] == record.eid
    details = [made["detail"] for made in actions.events]
    assert details == [{"number": number} for number in range(3)]
    assert {made["event_id"] for made in actions.events} == {record.eid}
    assert actions.next is None
    # Only the tenant's own events have one.
    foreign = decision()
    await world.log.append(OTHER, foreign)
    change = change_record("t", "x", "system", {}, record_id=event_id())
    await world.log.append(TENANT, change)
    for eid in (foreign.eid, change.eid, "none"):
        with pytest.raises(NotFound):
            await lineage(world.store, TENANT, eid, 1)


async def test_lineage_is_shown_page_by_page_while_more_is_recorded(world: OpenStore) -> None:
    record = decision()
    placed = await world.log.append(TENANT, record)

    async def act(number: int) -> None:
        await world.log.append(TENANT, action(record.eid, placed.leaf_hash, number))

    for number in range(20):
        await act(number)
    shown, after, number = [], -1, 20
    while True:
        found, actions = await lineage(world.store, TENANT, record.eid, 7, after)
        assert found["event_id"] == record.eid
        assert len(actions.events) <= 7
        shown += [made["detail"]["number"] for made in actions.events]
        if actions.next is None:
            break
        after = actions.next
        await act(number)
        number += 1
    assert shown == list(range(number))


@pytest.mark.deep(stands_in="test_filters_find_exactly_the_matching_events")
async def test_an_index_of_full_blocks_answers_the_same_after_a_restart(either_url: str) -> None:
    """With the real block size, and enough entries to fill a block of each facet."""
    async with opened(either_url) as world:
        for _ in range(9):
            await asyncio.gather(
                *(world.log.append(TENANT, decision(agent_role=f"r{n % 7}")) for n in range(512))
            )
    async with opened(either_url) as world:
        assert await world.rows("SELECT count(*) FROM log_spans") != [(0,)]
        listed = await everything(world, EventFilters(agent_role="r3"))
        assert len(listed) == 9 * 73
        answer = await verify(world.store, TENANT)
        assert (answer["valid"], answer["total"]) == (True, 9 * 512)
