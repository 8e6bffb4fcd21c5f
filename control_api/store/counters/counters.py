"""What is counted while a log grows: decisions by who, what and when, so that nobody has to walk
the log to know how many there are.

    tally.add(index, source_type)        for each entry of a batch; in memory only
    tally.save(connection, tenant_id)    in the transaction that appends the batch

INVARIANT: a tenant's counts move under the lock of its log's head, with the entries that they
count; so they say what the log holds. Time is event time. Knows nothing of what is asked of them;
`control_api.store.counters.queries` reads them.
"""

from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table, case, select
from sqlalchemy.dialects import postgresql, sqlite

from control_api.store.counters.dimensions import (
    BUCKETS,
    KEPT,
    MISMATCH,
    SECOND,
    SEPARATOR,
    Dimension,
)
from control_api.store.schema.tables import first_accesses, tallies
from policies.trail.entry import Index

_Key = tuple[int, str, int]
# What decisions of a batch have in common; a call repeats itself, so there are few.
_Alike = tuple[str, str, str, str | None, str | None, bool, bool, int]


class BatchCounts:
    """The counts of one batch."""

    __slots__ = ("_alike",)

    def __init__(self) -> None:
        self._alike: dict[_Alike, list[int]] = {}

    def add(self, index: Index, source_type: str) -> None:
        """One `decision` entry."""
        assert index.agent_role is not None
        assert index.source_id is not None
        alike = (
            source_type,
            index.agent_role,
            index.source_id,
            index.agent_id,
            index.session_id,
            index.decision == "ALLOW",
            index.policy_name == MISMATCH,
            index.ts // SECOND,
        )
        found = self._alike.get(alike)
        if found is None:
            self._alike[alike] = [1, index.ts, index.ts]
        else:
            found[0] += 1
            if index.ts > found[1]:
                found[1] = index.ts
            elif index.ts < found[2]:
                found[2] = index.ts

    def save(self, connection: Connection, tenant_id: str) -> None:
        counts, accesses = self.rows()
        for table, rows in ((tallies, counts), (first_accesses, accesses)):
            if rows:
                values = [(tenant_id, *row) for row in rows]
                connection.exec_driver_sql(_upsert(table, connection.dialect), values)

    def rows(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Counts to add, and first accesses; without the tenant, in the order of their keys."""
        counts = [(*key, *counted) for key, counted in sorted(self._counts().items())]
        return counts, [(*pair, ts) for pair, ts in sorted(self._accesses().items())]

    def take_back(self, connection: Connection, tenant_id: str) -> None:
        """These entries leave the log: what was counted of them for all time is counted no more.
        Buckets of time stay: they are forgotten by age."""
        rows = [
            (tenant_id, *key, -allowed, -denied, 0)
            for key, (allowed, denied, _) in sorted(self._counts().items())
            if Dimension(key[0]) not in BUCKETS
        ]
        if rows:
            connection.exec_driver_sql(_upsert(tallies, connection.dialect), rows)
            keys = [row[:4] for row in rows]
            connection.exec_driver_sql(_deletion(connection.dialect, empty=True), keys)

    def _counts(self) -> dict[_Key, list[int]]:
        """Allowed, denied and the last time of each value of each facet."""
        counts: dict[_Key, list[int]] = {}
        for alike, (many, last, _) in self._alike.items():
            place = 0 if alike[5] else 1
            for key in _keys(alike):
                found = counts.get(key)
                if found is None:
                    counts[key] = [many, 0, last] if place == 0 else [0, many, last]
                else:
                    found[place] += many
                    found[2] = max(found[2], last)
        return counts

    def _accesses(self) -> dict[tuple[str, str], int]:
        """When each pair of role and source was first allowed, in this batch."""
        first: dict[tuple[str, str], int] = {}
        for alike, (_, _, earliest) in self._alike.items():
            if alike[5]:
                pair = (alike[1], alike[2])
                first[pair] = min(first.get(pair, earliest), earliest)
        return first


# On the path of every append: as numbers, since an enumeration's members are slow to hash.
_SOURCE_TYPE, _ROLE, _SOURCE, _AGENT, _AGENT_SOURCE, _SESSION, *_TIMES = map(int, Dimension)
_SECOND, _MINUTE, _MISMATCH_SECOND, _MISMATCH_MINUTE = _TIMES
# Buckets in seconds, which is what decisions that are alike share.
_IN_MINUTE, _IN_AGENT, _IN_AGENT_SOURCE = (
    BUCKETS[facet] // SECOND
    for facet in (Dimension.minute, Dimension.agent, Dimension.agent_source)
)


def _keys(alike: _Alike) -> list[_Key]:
    """Where decisions that are alike count."""
    source_type, role, source, agent, session, _, mismatch, second = alike
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
    """For tuples of all columns in their order."""
    make = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
    # Typed as what they share: both dialects spell it alike.
    statement: Any = make(table)
    new = statement.excluded
    if table is tallies:
        changed = statement.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={
                "allowed": tallies.c.allowed + new.allowed,
                "denied": tallies.c.denied + new.denied,
                "last_ts": _larger(tallies.c.last_ts, new.last_ts),
            },
        )
    else:
        changed = statement.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={"first_ts": new.first_ts},
            where=new.first_ts < first_accesses.c.first_ts,
        )
    return str(changed.compile(dialect=dialect))


def _larger(one: Any, other: Any) -> Any:
    return case((one > other, one), else_=other)


def forget_before(connection: Connection, tenant_id: str, now: int, most: int = 1000) -> bool:
    """Drop buckets that nobody may ask for any more, at most `most` of each facet; whether some may
    be left. Under the lock of the log's head."""
    left = False
    for facet, kept in KEPT.items():
        old = (
            select(tallies.c.value, tallies.c.bucket)
            .where(
                tallies.c.tenant_id == tenant_id,
                tallies.c.facet == int(facet),
                tallies.c.bucket < (now - kept) // BUCKETS[facet],
            )
            .limit(most)
        )
        rows = connection.execute(old).all()
        left = left or len(rows) == most
        if rows:
            connection.exec_driver_sql(
                _deletion(connection.dialect, empty=False),
                [(tenant_id, int(facet), value, bucket) for value, bucket in rows],
            )
    return left


@lru_cache(maxsize=4)
def _deletion(dialect: Dialect, *, empty: bool) -> str:
    """Of rows by their whole key; of those that count nothing any more, where `empty`."""
    names = ("tenant_id", "facet", "value", "bucket")
    marks = ("?",) * 4 if dialect.name == "sqlite" else ("$1", "$2", "$3", "$4")
    where = " AND ".join(f"{name} = {mark}" for name, mark in zip(names, marks, strict=True))
    zero = " AND allowed = 0 AND denied = 0" if empty else ""
    return f"DELETE FROM tallies WHERE {where}{zero}"  # noqa: S608  # of constants


def counted(connection: Connection, tenant_id: str) -> dict[str, tuple[int, int]]:
    """Decisions that the counts say the log holds, by source type: what verification compares."""
    found = connection.execute(
        select(tallies.c.value, tallies.c.allowed, tallies.c.denied).where(
            tallies.c.tenant_id == tenant_id, tallies.c.facet == int(Dimension.source_type)
        )
    )
    return {value: (allowed, denied) for value, allowed, denied in found}
