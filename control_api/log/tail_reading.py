"""Reads the new entries of a log once for all of its live followers (tails), and matches them
against the filters of each."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.search import MOST_SELECTIVE, EventFilters, events_of, search
from control_api.store.schema.log import entries_with_openings, log_entries, log_heads, openings
from control_api.store.schema.statements import chunks, of_tenant
from policies.trail.entry import audit_event

MatchedRow = Sequence[Any]
"""The `seq` of an entry, followed by the columns of `columns_of`."""


def columns_of(filters: Iterable[EventFilters]) -> list[str]:
    """Return the columns that any of the filters compares. Reading fewer columns is faster."""
    wanted = list(filters)
    names = [
        name for name in MOST_SELECTIVE if any(getattr(each, name) is not None for each in wanted)
    ]
    if any(each.since is not None or each.until is not None for each in wanted):
        names.append("ts")
    return names


def match(
    rows: Sequence[MatchedRow], columns: Sequence[str], filters: Iterable[EventFilters]
) -> dict[EventFilters, list[int]]:
    """Return for each set of filters the `seq`s of the rows that match all of it, in the order of
    the rows. `columns` are those of `columns_of`."""
    places = {name: place for place, name in enumerate(columns, 1)}
    # Many watch one agent or one source each. So the rows are sorted by their values once, and each
    # set of filters looks at the rows with its own value only.
    by_value: dict[str, dict[Any, list[MatchedRow]]] = {}
    found = {}
    for each in filters:
        names = [name for name in MOST_SELECTIVE if getattr(each, name) is not None]
        candidates: Sequence[MatchedRow] = rows
        if names:
            first = names.pop(0)
            if first not in by_value:
                by_value[first] = _sorted(rows, places[first])
            candidates = by_value[first].get(getattr(each, first), ())
        for name in names:
            place, value = places[name], getattr(each, name)
            candidates = [row for row in candidates if row[place] == value]
        if each.since is not None:
            candidates = [row for row in candidates if row[places["ts"]] >= each.since]
        if each.until is not None:
            candidates = [row for row in candidates if row[places["ts"]] < each.until]
        found[each] = [row[0] for row in candidates]
    return found


def _sorted(rows: Sequence[MatchedRow], place: int) -> dict[Any, list[MatchedRow]]:
    by_value: dict[Any, list[MatchedRow]] = {}
    for row in rows:
        by_value.setdefault(row[place], []).append(row)
    return by_value


MOST_READ = 10_000
"""The most new entries that one turn looks at. In a log that grew faster, all but the newest are
skipped."""
MOST_SHOWN = 400
"""The most entries that one turn shows to all followers together. Rendering them takes about 10
ms."""
CATCH_UP = 100
"""The most missed entries that a follower is shown when it reconnects."""
FIELDS = (
    "event_id",
    "seq",
    "timestamp",
    "time_doubtful",
    "agent_foreign",
    "decision",
    "policy_name",
    "reason",
    "check",
    "agent_role",
    "agent_id",
    "user_id",
    "source_id",
    "sensitivity_level",
    "session_id",
    "sidecar_id",
)
"""The fields of an event that are shown to a follower. Its hashes and the content of its request,
such as `query`, are left out."""
_log = logging.getLogger("sluice.follow")


class EventLine(NamedTuple):
    """An event as JSON, with its place in the log."""

    seq: int
    json: bytes


class Part(NamedTuple):
    """The events to show from a stretch of the log that ends before entry `until`, in the log's
    order. `left_out` is how many other events match, `unread` how many entries were not looked
    at."""

    until: int
    events: list[EventLine]
    left_out: int = 0
    unread: int = 0


def read_new(
    connection: Connection, tenant_id: str, position: int, allowed: Mapping[EventFilters, int]
) -> tuple[int, dict[EventFilters, Part]]:
    """Return the log's size, and for each set of filters the new events from `position` on, if any
    match. Of more than `allowed` events, only the newest are returned."""
    head = select(log_heads.c.size).where(of_tenant(log_heads, tenant_id))
    size: int = connection.execute(head).scalar_one_or_none() or 0
    if size <= position:
        return size, {}
    unread = max(0, size - position - MOST_READ)
    columns = columns_of(allowed)
    rows = connection.execute(_new(tenant_id, columns, position + unread, size)).all()
    share = max(1, MOST_SHOWN // max(1, len(allowed)))
    matched = {filters: seqs for filters, seqs in match(rows, columns, allowed).items() if seqs}
    chosen = {
        filters: seqs[len(seqs) - min(len(seqs), allowed[filters], share) :]
        for filters, seqs in matched.items()
    }
    events = _events(connection, tenant_id, {seq for seqs in chosen.values() for seq in seqs})
    parts = {}
    for filters, seqs in chosen.items():
        found = [events[seq] for seq in seqs if seq in events]
        parts[filters] = Part(size, found, len(matched[filters]) - len(found), unread)
    if unread:
        for filters in allowed.keys() - parts.keys():
            parts[filters] = Part(size, [], 0, unread)
    return size, parts


async def read_missed(
    connection: AsyncConnection, tenant_id: str, filters: EventFilters, missed: range
) -> Part:
    """Return the newest `CATCH_UP` matching events among the entries `missed`, for a follower that
    reconnects."""
    rows = await search(connection, tenant_id, filters, CATCH_UP + 1, before=missed.stop)
    rows = [row for row in rows if row.seq >= missed.start]
    unread = 0
    if len(rows) > CATCH_UP:
        rows.pop()
        unread = rows[-1].seq - missed.start
    rows.reverse()
    chosen = list(_lines(tenant_id, rows))
    return Part(missed.stop, chosen, len(rows) - len(chosen), unread)


def _new(tenant_id: str, columns: list[str], first: int, until: int) -> Any:
    table = entries_with_openings if "user_id" in columns else log_entries
    read = [openings.c.user_id if name == "user_id" else log_entries.c[name] for name in columns]
    seq = log_entries.c.seq
    return (
        select(seq, *read)
        .select_from(table)
        .where(
            of_tenant(log_entries, tenant_id),
            seq >= first,
            seq < until,
            log_entries.c.kind == "decision",
        )
        .order_by(seq)
    )


def _events(connection: Connection, tenant_id: str, seqs: set[int]) -> dict[int, EventLine]:
    events: dict[int, EventLine] = {}
    for part in chunks(sorted(seqs)):
        rows = connection.execute(events_of(tenant_id).where(log_entries.c.seq.in_(part))).all()
        events.update((each.seq, each) for each in _lines(tenant_id, rows))
    return events


def _lines(tenant_id: str, rows: Iterable[Row[Any]]) -> Iterable[EventLine]:
    for row in rows:
        try:
            event = audit_event(orjson.loads(row.entry), row.hash, row.openings)
        except (ValueError, TypeError, LookupError, AttributeError):
            # It must not hold up those behind it: it counts as left out, and verification names it.
            _log.error(
                "entry %d of tenant `%s` can't be read, and is not shown", row.seq, tenant_id
            )
            continue
        yield EventLine(row.seq, orjson.dumps({name: event[name] for name in FIELDS}))
