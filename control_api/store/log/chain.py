"""Appends records behind the end of one tenant's log. The head row of a log says where it ends.

    chain = LogChain.load(connection, tenant_id)  the head row, locked until the transaction ends
    appended = chain.add(record, now)             numbered, chained and hashed, in memory
    chain.save(connection)                        entries, openings, counts and the new head

INVARIANT: entries and head change in one transaction, so a crash leaves both or neither.

Loading a head locks it until the transaction ends, and creates it for a tenant's first record.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, Dialect, Table, bindparam, exists, insert, select, update

from control_api.store.counters.candidates import BatchCandidates
from control_api.store.counters.counters import BatchCounts
from control_api.store.errors import UnknownState
from control_api.store.log import index as log_index
from control_api.store.log import postgresql_batch
from control_api.store.log.postgresql_batch import SpoolMove
from control_api.store.schema.log import log_entries, log_heads, openings
from control_api.store.schema.statements import insert_if_absent, of_tenant
from control_api.store.schema.tables import installation, tenants
from policies.definitions.model import Candidate
from policies.ground.canonical import b64, encode, micros, rfc3339
from policies.ground.errors import Invalid, NotFound
from policies.trail.core import REJECTED, TIME_DOUBTFUL
from policies.trail.entry import Index, counted_index, index_of
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.record import MAX_ENTRY, Record
from policies.trail.spool_chain import LogPosition, Spooled


class LogEnd(NamedTuple):
    """The end of a log: its head row without the tenant, in the order of the table's columns.
    `last_ts` is in microseconds since 1970 UTC. `candidates` is the text of the table's column,
    which `listed` reads."""

    log: str
    size: int
    last_leaf: bytes
    last_ts: int
    frontier: bytes
    candidates: str | None = None


@lru_cache(maxsize=1024)
def listed(candidates: str | None) -> tuple[Candidate, ...]:
    return (
        () if candidates is None else tuple(Candidate(*each) for each in orjson.loads(candidates))
    )


def list_candidates(
    connection: Connection, tenant_id: str, candidates: Iterable[Candidate]
) -> None:
    """Store the tenant's candidates in the log's head, to be counted for all entries after this
    transaction. The caller must hold the head's lock, and append an entry: cached ends of the log
    are then out of date."""
    text = encode([list(each) for each in candidates]).decode()
    named = {"tenant": tenant_id, "named": None if text == "[]" else text}
    connection.execute(_LIST, named)


def load(connection: Connection, tenant_id: str) -> LogEnd:
    """Lock and read the head. Raises `NotFound` if there is no such tenant, and `UnknownState` if a
    log has entries but no head."""
    wanted = {"tenant": tenant_id}
    row = connection.execute(_HEAD, wanted).one_or_none()
    if row is None:
        _create(connection, tenant_id)
        row = connection.execute(_HEAD, wanted).one()
    return LogEnd(*row)


def move(connection: Connection, tenant_id: str, loaded_size: int, end: LogEnd) -> bool:
    """Move the head to `end`. Returns False if the head no longer has the size that was loaded."""
    moved = dict(zip(_MOVE_PARAMETERS, (tenant_id, loaded_size, *end[1:5]), strict=True))
    return connection.execute(_MOVE, moved).rowcount == 1


def _create(connection: Connection, tenant_id: str) -> None:
    """Create the head of an empty log. The log's name contains the installation's epoch and the
    tenant, so that a log from another database is recognised as foreign."""
    wanted = {"tenant": tenant_id}
    if connection.execute(_TENANT, wanted).first() is None:
        raise NotFound(f"no such tenant: `{tenant_id}`")
    # With a new head, the next entry would get number 0 and start a second chain over the first.
    if connection.execute(_HEADLESS_ENTRY, wanted).first() is not None:
        raise UnknownState(f"the log of tenant `{tenant_id}` has entries and no head")
    epoch = connection.execute(_EPOCH).scalar_one()
    connection.execute(
        # If two replicas create the same head at once, one inserts it, and both then read that row.
        insert_if_absent(log_heads, connection.dialect),
        {
            "tenant_id": tenant_id,
            "log": f"sluice/{epoch}/{tenant_id}",
            "size": 0,
            "last_leaf": b"",
            "last_ts": 0,
            "frontier": b"",
        },
    )


# The row stays locked until the transaction ends: of two replicas that append, one waits here.
_HEAD = (
    select(*(log_heads.c[name] for name in LogEnd._fields))
    .where(of_tenant(log_heads))
    .with_for_update()
)
_LIST = update(log_heads).where(of_tenant(log_heads)).values(candidates=bindparam("named"))
_TENANT = select(tenants.c.tenant_id).where(of_tenant(tenants))
_EPOCH = select(installation.c.epoch).where(of_tenant(installation, ""))
# One statement sees one state of the database. If it read only the entries, it could find those
# that another replica has committed, with the head, since this transaction looked for the head.
_HEADLESS_ENTRY = (
    select(log_entries.c.seq)
    .where(of_tenant(log_entries), ~exists().where(of_tenant(log_heads)))
    .limit(1)
)
_MOVE_PARAMETERS = ("tenant", "loaded", "to_size", "to_leaf", "to_ts", "to_frontier")
_MOVE = (
    update(log_heads)
    .where(of_tenant(log_heads), log_heads.c.size == bindparam("loaded"))
    .values(
        size=bindparam("to_size"),
        last_leaf=bindparam("to_leaf"),
        last_ts=bindparam("to_ts"),
        frontier=bindparam("to_frontier"),
    )
)


NO_OPENINGS = b"{}"


class Appended(NamedTuple):
    """A record's position in its log. `ts` is in microseconds since 1970 UTC."""

    seq: int
    eid: str
    leaf_hash: bytes
    ts: int


class LogChain:
    """The end of a log, and the entries added behind it in memory, which `save` writes. Do not use
    it after an exception or after `save`."""

    def __init__(self, tenant_id: str, end: LogEnd) -> None:
        """Continue the log from `end`. Raises `UnknownState` if `end` is not a valid head."""
        self.tenant_id = tenant_id
        self.log = end.log
        self._log = encode(end.log)
        try:
            self._tree = Frontier.from_bytes(end.size, end.frontier)
        except ValueError as error:
            raise UnknownState(f"the head of log `{end.log}` can't be read: {error}") from error
        self._loaded = end
        self._last_leaf = end.last_leaf
        self._last_ts = end.last_ts
        self._entries: list[tuple[Any, ...]] = []
        self._openings: list[tuple[Any, ...]] = []
        self._counts = BatchCounts()
        candidates = listed(end.candidates)
        self._candidates = BatchCandidates(candidates) if candidates else None
        self._spool: SpoolMove | None = None

    @classmethod
    def load(cls, connection: Connection, tenant_id: str) -> "LogChain":
        """Lock and read the head, or create it for a tenant's first record, and return a chain that
        continues from it. Raises `NotFound` if there is no such tenant, and `UnknownState` if the
        head is missing or invalid."""
        return cls(tenant_id, load(connection, tenant_id))

    def add(self, record: Record, now: int) -> Appended:
        """Add a record that this service made, and return its position. Raises `Invalid`, and adds
        nothing, if it is too large."""
        # A log's times never run backwards, even if the clock does.
        ts = max(now, self._last_ts)
        text = rfc3339(ts)
        entry = record.entry(self.log, self._tree.size, b64(self._last_leaf), text)
        index, source_type, user_id = _indexed(record, ts, text)
        opened = (user_id, record.openings)
        return self._add_entry(entry, index, source_type, opened, ts, record.pub)

    def add_spooled(self, spooled: Spooled, now: int) -> Appended:
        """Add a record that a sidecar delivered, and return its position. Raises `Invalid`, and
        adds nothing, if it is too large."""
        ts = max(now, self._last_ts)
        prev, text = b64(self._last_leaf).encode(), rfc3339(ts).encode()
        entry = spooled.entry(LogPosition(self._log, self._tree.size, prev, text))
        opened = (spooled.user_id, spooled.openings)
        columns, marks = spooled.columns, spooled.marks
        if TIME_DOUBTFUL in marks or columns.kind == REJECTED:
            columns = columns._replace(ts=ts)
        return self._add_entry(
            entry, columns, spooled.source_type, opened, ts, spooled.members[2], marks
        )

    def _add_entry(
        self,
        entry: bytes,
        index: Index,
        source_type: str | None,
        opened: tuple[str | None, bytes],
        ts: int,
        pub: bytes,
        marks: tuple[str, ...] = (),
    ) -> Appended:
        if len(entry) > MAX_ENTRY:
            raise Invalid(
                f"the record needs {len(entry)} bytes, over the limit of {MAX_ENTRY} for an entry"
            )
        # INVARIANT: nothing above changes this object, so a refused record leaves no gap.
        seq, leaf = self._tree.size, leaf_hash(entry)
        self._entries.append((seq, *index, entry, leaf))
        if opened[1] != NO_OPENINGS:
            self._openings.append((seq, *opened))
        if TIME_DOUBTFUL in marks:
            self._counts.add_doubtful(ts)
        if source_type is not None:
            counted = counted_index(index, ts, marks)
            self._counts.add(counted, source_type)
            if self._candidates is not None:
                self._candidates.add(pub, counted)
        self._tree.append(leaf)
        self._last_leaf, self._last_ts = leaf, ts
        return Appended(seq, index.eid, leaf, ts)

    def move_spool(self, move: SpoolMove) -> None:
        """Have the row of the entries' spool moved together with the head, on PostgreSQL. Nothing
        is written unless the log holds the record after which `move` begins."""
        self._spool = move

    def save(self, connection: Connection) -> None:
        """Write the added entries and the new head. Raises `IntegrityError` if the log already has
        an entry with one of their ids."""
        if self._entries and not self.save_unless_moved(connection):
            # `load` locked the row, so this transaction alone may change it.
            raise UnknownState(f"the head of log `{self.log}` changed although it is locked")

    def save_unless_moved(self, connection: Connection) -> bool:
        """Write the entries like `save`, for a head that was not loaded in this transaction.
        Returns False, and writes no entry, if the head is not where this chain began."""
        if connection.dialect.name == "postgresql":
            self._entries = postgresql_batch.write_excess(
                connection, self.tenant_id, log_entries, self._entries
            )
            self._openings = postgresql_batch.write_excess(
                connection, self.tenant_id, openings, self._openings
            )
            moved = postgresql_batch.write(connection, *self.statement())
        else:
            moved = self._write(connection)
        if moved:
            # In the same transaction: readers infer from the log's size what the index holds.
            log_index.extend(connection, self.tenant_id, self._loaded.size, self._tree.size)
        return moved

    @property
    def end(self) -> LogEnd:
        """The end of the log once `save` has succeeded."""
        frontier = self._tree.to_bytes()
        place = (self._tree.size, self._last_leaf, self._last_ts, frontier)
        return LogEnd(self.log, *place, self._loaded.candidates)

    @property
    def changed(self) -> bool:
        return bool(self._entries)

    @property
    def fits_one_statement(self) -> bool:
        """True if saving on PostgreSQL takes only one statement, because no block of the index has
        to be written."""
        return not log_index.due(self._loaded.size, self._tree.size)

    def statement(self) -> tuple[str, tuple[Any, ...]]:
        """Return the statement that saves these entries on PostgreSQL, and its parameters."""
        head = (self._loaded.size, self._loaded.last_leaf, *self.end[1:5])
        rows = [self._entries, self._openings, *self._counts.rows()]
        if self._candidates is not None:
            rows.append(self._candidates.rows())
        return postgresql_batch.statement(self.tenant_id, head, self._spool, rows)

    def _write(self, connection: Connection) -> bool:
        """Write the rows and the head with one statement per table. Returns whether the head
        moved."""
        for table, rows in ((log_entries, self._entries), (openings, self._openings)):
            if rows:
                values = [(self.tenant_id, *row) for row in rows]
                connection.exec_driver_sql(_insertion(table, connection.dialect), values)
        self._counts.save(connection, self.tenant_id)
        if self._candidates is not None:
            self._candidates.save(connection, self.tenant_id)
        return move(connection, self.tenant_id, self._loaded.size, self.end)


def find_appended(connection: Connection, tenant_id: str, eids: list[str]) -> dict[str, Appended]:
    """Return the positions of those of the ids `eids` that the log already holds."""
    rows = connection.execute(_BY_EID, {"tenant": tenant_id, "eids": eids})
    return {
        eid: Appended(seq, eid, leaf, micros(orjson.loads(entry)["ts"]))
        for eid, seq, leaf, entry in rows
    }


def _indexed(record: Record, ts: int, text: str) -> tuple[Index, str | None, str | None]:
    """Return a record's index columns, the source type if it is a decision, and the user id. `text`
    is the time `ts` in the record's format."""
    if record.decided is None:
        pub = orjson.loads(record.pub)
        index = index_of({"eid": record.eid, "kind": record.kind, "pub": pub, "ts": text})
        source_type = None if index.decision is None else pub["request"]["source_type"]
        return index, source_type, user_id_of(record.openings)
    # What its bytes were made of says the same (a test compares), and decoding them takes as long
    # as hashing and chaining the entry.
    retrieval, decision, user_id = record.decided
    index = Index(
        record.eid,
        record.kind,
        ts,
        retrieval.agent_role,
        retrieval.agent_id,
        retrieval.source_id,
        decision.decision,
        decision.policy_name,
        retrieval.session_id,
        None,
    )
    return index, retrieval.source_type, user_id


def user_id_of(opened: bytes) -> str | None:
    """Return the user id in a record's openings, for the table's `user_id` column; None if they
    have none."""
    opening = orjson.loads(opened).get("user_id")
    return None if opening is None else opening[1]


@lru_cache(maxsize=16)
def _insertion(table: Table, dialect: Dialect) -> str:
    """Return an `INSERT` that takes tuples of all columns, in order. One that takes dicts costs
    twice as much."""
    return str(insert(table).compile(dialect=dialect))


_BY_EID = select(
    log_entries.c.eid, log_entries.c.seq, log_entries.c.hash, log_entries.c.entry
).where(of_tenant(log_entries), log_entries.c.eid.in_(bindparam("eids", expanding=True)))
