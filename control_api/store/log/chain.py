"""The end of one tenant's log, and what it means to put a record there.

    chain = Chain.load(connection, tenant_id)     the head row, locked until the transaction ends
    appended = chain.add(record, now)           numbered, chained, hashed; in memory only
    chain.save(connection)                        entries, openings and the new head, as one

INVARIANT: entries and head change in one transaction, so a crash leaves both or neither. Knows
nothing of batches, callers or sources.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Dialect, Table, bindparam, insert, select

from control_api.store.counters.counters import BatchCounts
from control_api.store.errors import UnknownState
from control_api.store.log import heads, postgresql_batch
from control_api.store.log import index as log_index
from control_api.store.log.heads import LogEnd
from control_api.store.schema.tables import log_entries, openings
from policies.ground.canonical import b64, encode, micros, rfc3339
from policies.ground.errors import Invalid
from policies.trail.entry import Index, index_of
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.record import MAX_ENTRY, Record
from policies.trail.spool_chain import LogPosition, Spooled

NO_OPENINGS = b"{}"


class Appended(NamedTuple):
    """Where a record stands in its log; `ts` in microseconds since 1970 UTC."""

    seq: int
    eid: str
    leaf_hash: bytes
    ts: int


class LogChain:
    """A log's end. Not used again after an exception or after `save`."""

    def __init__(self, tenant_id: str, end: LogEnd) -> None:
        """`UnknownState` where that is no end."""
        self.tenant_id = tenant_id
        self.log = end.log
        self._log = encode(end.log)
        try:
            self._tree = Frontier.from_bytes(end.size, end.frontier)
        except ValueError as error:
            raise UnknownState(f"the head of log `{end.log}` can't be read: {error}") from error
        self._begun = end
        self._last_leaf = end.last_leaf
        self._last_ts = end.last_ts
        self._entries: list[tuple[Any, ...]] = []
        self._openings: list[tuple[Any, ...]] = []
        self._tally = BatchCounts()

    @classmethod
    def load(cls, connection: Connection, tenant_id: str) -> "LogChain":
        """Begins the log with its tenant's first record. `NotFound` where there is no such tenant;
        `UnknownState` where the head is missing or is no head."""
        return cls(tenant_id, heads.load(connection, tenant_id))

    def add(self, record: Record, now: int) -> Appended:
        """Of a record made here. `Invalid`, and nothing placed, where it is too large."""
        ts = max(now, self._last_ts)
        text = rfc3339(ts)
        entry = record.entry(self.log, self._tree.size, self._prev(), text)
        pub = orjson.loads(record.pub)
        index = index_of({"eid": record.eid, "kind": record.kind, "pub": pub, "ts": text})
        opened = (user_id_of(record.openings), record.openings)
        source_type = pub["request"]["source_type"] if index.decision is not None else None
        return self._put(entry, index, source_type, opened, ts)

    def add_spooled(self, spooled: Spooled, now: int) -> Appended:
        """Of a record that an enforcement point made."""
        ts = max(now, self._last_ts)
        prev, text = self._prev().encode(), rfc3339(ts).encode()
        entry = spooled.entry(LogPosition(self._log, self._tree.size, prev, text))
        opened = (spooled.user_id, spooled.openings)
        return self._put(entry, spooled.columns, spooled.source_type, opened, ts)

    def _prev(self) -> str:
        return b64(self._last_leaf)

    def _put(
        self,
        entry: bytes,
        index: Index,
        source_type: str | None,
        opened: tuple[str | None, bytes],
        ts: int,
    ) -> Appended:
        if len(entry) > MAX_ENTRY:
            raise Invalid(f"the record needs {len(entry)} bytes, and an entry holds {MAX_ENTRY}")
        seq, leaf = self._tree.size, leaf_hash(entry)
        self._entries.append((seq, *index, entry, leaf))
        if opened[1] != NO_OPENINGS:
            self._openings.append((seq, *opened))
        if source_type is not None:
            # A time that has not come yet is of a clock that is wrong: it must not wait in a window
            # of its own until it has.
            counted = index if index.ts <= ts else index._replace(ts=ts)
            self._tally.add(counted, source_type)
        self._tree.append(leaf)
        self._last_leaf, self._last_ts = leaf, ts
        return Appended(seq, index.eid, leaf, ts)

    def save(self, connection: Connection) -> None:
        """`IntegrityError` where one of the ids stands in the log already."""
        if not self._entries:
            return
        if connection.dialect.name == "postgresql":
            self._entries = postgresql_batch.fill(
                connection, self.tenant_id, log_entries, self._entries
            )
            self._openings = postgresql_batch.fill(
                connection, self.tenant_id, openings, self._openings
            )
            moved = postgresql_batch.write(connection, self.values())
        else:
            moved = self._write(connection)
        if not moved:
            # The row was ours alone since `load`.
            raise UnknownState(f"the head of log `{self.log}` moved under its lock")
        log_index.extend(connection, self.tenant_id, self._begun.size, self._tree.size)

    @property
    def end(self) -> LogEnd:
        """Where the log ends once it is saved."""
        frontier = self._tree.to_bytes()
        return LogEnd(self.log, self._tree.size, self._last_leaf, self._last_ts, frontier)

    @property
    def one_statement(self) -> bool:
        """Whether saving on PostgreSQL takes only `postgresql_batch.STATEMENT` with `values()`."""
        return bool(self._entries) and not log_index.due(self._begun.size, self._tree.size)

    def values(self) -> tuple[Any, ...]:
        """What `postgresql_batch.STATEMENT` takes."""
        head = (self._begun.size, self._begun.last_leaf, *self.end[1:])
        return postgresql_batch.values_of(
            self.tenant_id, head, self._entries, self._openings, *self._tally.rows()
        )

    def _write(self, connection: Connection) -> bool:
        """The rows and the head, a statement a table."""
        for table, rows in ((log_entries, self._entries), (openings, self._openings)):
            if rows:
                values = [(self.tenant_id, *row) for row in rows]
                connection.exec_driver_sql(_insertion(table, connection.dialect), values)
        self._tally.save(connection, self.tenant_id)
        return heads.move(connection, self.tenant_id, self._begun.size, self.end)


def find_appended(connection: Connection, tenant_id: str, eids: list[str]) -> dict[str, Appended]:
    """Those of the ids that stand in the log already, and where."""
    rows = connection.execute(_PLACED, {"tenant": tenant_id, "eids": eids})
    return {
        eid: Appended(seq, eid, leaf, micros(orjson.loads(entry)["ts"]))
        for eid, seq, leaf, entry in rows
    }


def user_id_of(opened: bytes) -> str | None:
    """The user id in a record's openings, for the column beside them."""
    opening = orjson.loads(opened).get("user_id")
    return None if opening is None else opening[1]


@lru_cache(maxsize=16)
def _insertion(table: Table, dialect: Dialect) -> str:
    """`INSERT` of all columns in their order, for tuples: half the cost of one for dicts."""
    return str(insert(table).compile(dialect=dialect))


_PLACED = select(
    log_entries.c.eid, log_entries.c.seq, log_entries.c.hash, log_entries.c.entry
).where(
    log_entries.c.tenant_id == bindparam("tenant"),
    log_entries.c.eid.in_(bindparam("eids", expanding=True)),
)
