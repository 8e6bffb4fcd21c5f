"""Counts decisions by agent, role, source and the like as the log grows, so that no query has to
scan the log. Also defines the dimensions, the length of each dimension's time buckets, and how long
these are kept.

    counts.add(index, source_type)        for each entry of a batch, in memory
    counts.save(connection, tenant_id)    in the transaction that appends the batch

INVARIANT: a tenant's counts change with the entries that they count, under the lock of its log's
head, so they always match the log. Times are event times. `control_api.store.counters.queries`
reads the counts.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table, case, select

from control_api.store.schema.log import first_accesses, tallies
from control_api.store.schema.statements import insert_into, of_tenant
from policies.trail.entry import Index

MISMATCH = "session_agent_mismatch"
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
SEPARATOR = "\x1f"
"""Separates the two parts of a value that is made of two identifiers. No identifier contains this
control character."""


class Dimension(IntEnum):
    """The dimensions by which decisions are counted.

    INVARIANT: the table stores these numbers. Only append: never renumber or remove one.
    """

    source_type = 0
    agent_role = 1
    source_id = 2
    agent = 3
    agent_source = 4
    session = 5
    second = 6
    minute = 7
    mismatch_second = 8
    mismatch_minute = 9
    doubtful_second = 10
    doubtful_minute = 11


# Kept longer than anything that is queried: agents' activity and alert rules look back up to 7
# days. Rules sum windows of up to an hour by the second.
_TIMED: dict[Dimension, tuple[int, int]] = {
    Dimension.agent: (HOUR, 8 * DAY),
    Dimension.agent_source: (DAY, 9 * DAY),
    Dimension.second: (SECOND, 2 * HOUR),
    Dimension.minute: (MINUTE, 8 * DAY),
    Dimension.mismatch_second: (SECOND, 2 * HOUR),
    Dimension.mismatch_minute: (MINUTE, 8 * DAY),
    Dimension.doubtful_second: (SECOND, 2 * HOUR),
    Dimension.doubtful_minute: (MINUTE, 8 * DAY),
}
BUCKETS = {dimension: length for dimension, (length, _) in _TIMED.items()}
"""The length of each dimension's time buckets, in microseconds. A dimension that is not listed has
one bucket for all time."""
KEPT = {dimension: kept for dimension, (_, kept) in _TIMED.items()}
"""The time in microseconds for which each dimension's time buckets can be queried. Older ones are
dropped."""


_Key = tuple[int, str, int]
# The values that equal decisions of a batch share: source type, role, source, agent, session,
# whether allowed, whether a mismatch, second. Agents repeat their calls, so a batch has few groups.
_Group = tuple[str, str, str, str | None, str | None, bool, bool, int]
# How many, the time of the last and of the first, and the place of their verdict: allowed, denied.
_Counted = list[int]


class BatchCounts:
    __slots__ = ("_groups", "_groups_of")

    def __init__(self) -> None:
        self._groups: dict[_Group, _Counted] = {}
        # Found as the records come, while the batch before is being committed on PostgreSQL. So
        # little is left to do when its turn comes.
        self._groups_of: dict[_Key, list[_Counted]] = {}

    def add(self, index: Index, source_type: str) -> None:
        assert index.agent_role is not None
        assert index.source_id is not None
        group = (
            source_type,
            index.agent_role,
            index.source_id,
            index.agent_id,
            index.session_id,
            index.decision == "ALLOW",
            index.policy_name == MISMATCH,
            index.ts // SECOND,
        )
        found = self._groups.get(group)
        if found is None:
            self._groups[group] = counted = [1, index.ts, index.ts, 0 if group[5] else 1]
            for key in _keys(group):
                groups = self._groups_of.get(key)
                if groups is None:
                    self._groups_of[key] = [counted]
                else:
                    groups.append(counted)
        else:
            found[0] += 1
            if index.ts > found[1]:
                found[1] = index.ts
            elif index.ts < found[2]:
                found[2] = index.ts

    def add_doubtful(self, ts: int) -> None:
        """Count one record, of any kind, whose time is doubtful; `ts` is when it arrived
        (microseconds)."""
        second = ts // SECOND
        for key in ((_DOUBTFUL_SECOND, "", second), (_DOUBTFUL_MINUTE, "", second // _IN_MINUTE)):
            groups = self._groups_of.setdefault(key, [[0, ts, ts, 0]])
            groups[0][0] += 1

    def save(self, connection: Connection, tenant_id: str) -> None:
        counts, accesses = self.rows()
        for table, rows in ((tallies, counts), (first_accesses, accesses)):
            if rows:
                values = [(tenant_id, *row) for row in rows]
                connection.exec_driver_sql(_upsert(table, connection.dialect), values)

    def rows(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Return the rows of the counts to add, and the rows of the first allowed access for each
        pair of role and source. Both are without the tenant, in order of their keys."""
        counts = [(*key, *counted) for key, counted in self._counts()]
        return counts, [(*pair, ts) for pair, ts in sorted(self._accesses().items())]

    def subtract(self, connection: Connection, tenant_id: str) -> None:
        """Subtract these entries from the all-time counts, because they leave the log. Time buckets
        stay until they expire."""
        # The stored last time is kept if it is the larger one, so 0 leaves it as it is.
        rows = [
            (*key, -allowed, -denied, 0)
            for key, (allowed, denied, _) in self._counts()
            if Dimension(key[0]) not in BUCKETS
        ]
        adjust(connection, tenant_id, rows)

    def _counts(self) -> Iterator[tuple[_Key, list[int]]]:
        """Yield, in order, each value of each dimension with its numbers of allowed and denied
        decisions and the time of the last."""
        for key in sorted(self._groups_of):
            counts = [0, 0, 0]
            for many, last, _, place in self._groups_of[key]:
                counts[place] += many
                counts[2] = max(counts[2], last)
            yield key, counts

    def _accesses(self) -> dict[tuple[str, str], int]:
        """Return the time at which this batch first allowed each pair of role and source."""
        first: dict[tuple[str, str], int] = {}
        for group, (_, _, earliest, _) in self._groups.items():
            if group[5]:
                pair = (group[1], group[2])
                if earliest < first.get(pair, earliest + 1):
                    first[pair] = earliest
        return first


# The dimensions as plain integers: every append uses them, and enum members are slow to hash.
_SOURCE_TYPE, _ROLE, _SOURCE, _AGENT, _AGENT_SOURCE, _SESSION, *_TIMES = map(int, Dimension)
_SECOND, _MINUTE, _MISMATCH_SECOND, _MISMATCH_MINUTE, _DOUBTFUL_SECOND, _DOUBTFUL_MINUTE = _TIMES
# Bucket lengths in seconds rather than microseconds, because a group stores its time in seconds.
_IN_MINUTE, _IN_AGENT, _IN_AGENT_SOURCE = (
    BUCKETS[dimension] // SECOND
    for dimension in (Dimension.minute, Dimension.agent, Dimension.agent_source)
)


def _keys(group: _Group) -> list[_Key]:
    """Return the keys of the stored counts that a group of equal decisions adds to."""
    source_type, role, source, agent, session, _, mismatch, second = group
    minute = second // _IN_MINUTE
    keys: list[_Key] = [
        (_SOURCE_TYPE, source_type, 0),
        (_ROLE, role, 0),
        (_SOURCE, source, 0),
        (_SECOND, "", second),
        (_MINUTE, "", minute),
    ]
    if agent is not None:
        keys.append((_AGENT, agent, second // _IN_AGENT))
        keys.append((_AGENT_SOURCE, agent + SEPARATOR + source, second // _IN_AGENT_SOURCE))
    if session is not None:
        keys.append((_SESSION, session, 0))
    if mismatch:
        keys += ((_MISMATCH_SECOND, "", second), (_MISMATCH_MINUTE, "", minute))
    return keys


@lru_cache(maxsize=8)
def _upsert(table: Table, dialect: Dialect) -> str:
    """Return a statement that adds rows of counts to those stored. It takes tuples of all columns,
    in order."""
    statement = insert_into(table, dialect)
    new, stored = statement.excluded, tallies.c.last_ts
    if table is tallies:
        changed = statement.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={
                "allowed": tallies.c.allowed + new.allowed,
                "denied": tallies.c.denied + new.denied,
                # SQLite's `max` of two values is PostgreSQL's `greatest`; CASE is in both.
                "last_ts": case((stored > new.last_ts, stored), else_=new.last_ts),
            },
        )
    else:
        changed = statement.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={"first_ts": new.first_ts},
            where=new.first_ts < first_accesses.c.first_ts,
        )
    return str(changed.compile(dialect=dialect))


def adjust(connection: Connection, tenant_id: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows to the stored counts: rows without the tenant, whose numbers may be negative. A
    count that becomes 0 is deleted. The caller must hold the lock of the log's head."""
    if rows:
        values = [(tenant_id, *row) for row in rows]
        connection.exec_driver_sql(_upsert(tallies, connection.dialect), values)
        keys = [row[:4] for row in values]
        connection.exec_driver_sql(_deletion(connection.dialect, empty=True), keys)


def drop_expired(connection: Connection, tenant_id: str, now: int, limit: int = 1000) -> bool:
    """Delete expired buckets, at most `limit` of each dimension. Returns whether some may be left.
    The caller must hold the lock of the log's head."""
    # There is a limit because appends wait for that lock.
    left = False
    for dimension, kept in KEPT.items():
        old = (
            select(tallies.c.value, tallies.c.bucket)
            .where(
                of_tenant(tallies, tenant_id),
                tallies.c.facet == int(dimension),
                tallies.c.bucket < (now - kept) // BUCKETS[dimension],
            )
            .limit(limit)
        )
        rows = connection.execute(old).all()
        left = left or len(rows) == limit
        if rows:
            connection.exec_driver_sql(
                _deletion(connection.dialect, empty=False),
                [(tenant_id, int(dimension), value, bucket) for value, bucket in rows],
            )
    return left


@lru_cache(maxsize=4)
def _deletion(dialect: Dialect, *, empty: bool) -> str:
    """Return a statement that deletes rows by their whole key; with `empty`, only those whose
    counts are zero."""
    names = ("tenant_id", "facet", "value", "bucket")
    marks = ("?",) * 4 if dialect.name == "sqlite" else ("$1", "$2", "$3", "$4")
    where = " AND ".join(f"{name} = {mark}" for name, mark in zip(names, marks, strict=True))
    zero = " AND allowed = 0 AND denied = 0" if empty else ""
    return f"DELETE FROM tallies WHERE {where}{zero}"  # noqa: S608  # constants only
