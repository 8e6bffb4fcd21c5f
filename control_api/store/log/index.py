"""The search index over log entries, written late and in bulk.

An ordinary index writes a page for nearly every value of every entry; seven such indexes cost four
times as much as the entries themselves. This index is written for a whole block of entries at a
time, sorted, so that one page write serves many entries.

INVARIANT: in a log of `size` entries, the index of facet `place` holds exactly the entries below
`indexed_size(place, size)`. This depends on the size alone, because the index grows in the
transaction that changes the size. A reader scans the last few thousand entries and uses the index
for the rest.

The facets' blocks end at different sizes, so that no transaction has to write all of them.

On PostgreSQL a row of a new database names up to `STEP` entries with the same value: the first one,
and the distances of the others. That costs a quarter of a row for each entry. Versions before
0.2 can't read it, so an upgraded database gets such rows once its mark excludes them
(`control_api.store.schema.version`); rows of both forms are read the same way.
"""

from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Select,
    TextClause,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    text,
)

from control_api.store.schema.log import log_entries, log_index, log_spans, openings
from control_api.store.schema.statements import of_tenant

BLOCK = 4096
FACETS = (
    "agent_role",
    "agent_id",
    "source_id",
    "decision",
    "policy_name",
    "session_id",
    "user_id",
)
"""INVARIANT: the table stores a facet's place in this tuple. Only append: never move or remove
one."""
SPAN = len(FACETS)
"""The place of the time spans: `log_spans` is written as if it were one more facet."""
STEP = BLOCK // (SPAN + 1)
"""The entries that one row may name are within this many. INVARIANT: never less than before."""
ARRAYS_SINCE = "readable since 0019"
"""The mark of the oldest schema whose versions read rows that name several entries."""


def indexed_size(place: int, size: int) -> int:
    """The number of entries, from the first on, that the index of the facet at `place` holds in a
    log of `size`."""
    # Each facet's blocks end `STEP` entries after those of the facet before it.
    beyond = size - place * STEP
    return 0 if beyond < 0 else size - beyond % BLOCK


def block_end(place: int, first: int) -> int:
    """The end (exclusive) of the block that begins at `first`."""
    return indexed_size(place, first + BLOCK)


def due(old_size: int, new_size: int) -> bool:
    """Whether `extend` has anything to write."""
    return any(indexed_size(at, old_size) < indexed_size(at, new_size) for at in range(SPAN + 1))


def extend(connection: Connection, tenant_id: str, old_size: int, new_size: int) -> None:
    """Writes the blocks that the log's growth completed, in the transaction that appends. One large
    batch may complete several."""
    for place in range(SPAN + 1):
        first, until = indexed_size(place, old_size), indexed_size(place, new_size)
        while first < until:
            # A row of `log_spans` covers one block, so the facets are written block by block too.
            end = block_end(place, first)
            block = {"tenant": tenant_id, "first": first, "until": end}
            if place == SPAN:
                connection.execute(_INSERT_SPAN, block)
            elif _with_arrays(connection):
                connection.execute(_INSERT_ARRAYS[place], {**block, "step": STEP})
            else:
                connection.execute(_INSERT_FACET[place], block)
            first = end


def rewrite(connection: Connection, tenant_id: str, first: int, size: int) -> None:
    """Writes anew what the index of a log of `size` holds of the `STEP` entries from `first` on, a
    multiple of `STEP`. Rows for values that none of them has stay: they show no wrong entry."""
    for place in range(SPAN):
        until = min(first + STEP, indexed_size(place, size))
        if first < until:
            group = {"tenant": tenant_id, "first": first, "until": until}
            connection.execute(_DELETE_GROUP[place], group)
            if _with_arrays(connection):
                connection.execute(_INSERT_ARRAYS[place], {**group, "step": STEP})
            else:
                connection.execute(_INSERT_FACET[place], group)


def rewrite_span(connection: Connection, tenant_id: str, first: int) -> None:
    """Writes the times of the complete block that begins at `first` anew."""
    block = {"tenant": tenant_id, "first": first, "until": block_end(SPAN, first)}
    connection.execute(_DELETE_SPAN, block)
    connection.execute(_INSERT_SPAN, block)


def _with_arrays(connection: Connection) -> bool:
    """Whether every version that may run on this database reads rows that name several entries."""
    if connection.dialect.name != "postgresql":
        return False
    # Read each time: the mark may change while this process runs, but it never goes back.
    return bool(connection.execute(_FINISHED, {"since": ARRAYS_SINCE}).scalar())


def block_rows(name: str, until: str = "until") -> Select[Any]:
    """The index rows of facet `name` for the entries from `:first` up to, not including, the
    parameter named by `until`."""
    column = _column_of(name)
    return select(
        column.table.c.tenant_id,
        literal(FACETS.index(name)).label("facet"),
        column.label("value"),
        column.table.c.seq,
    ).where(
        of_tenant(column.table, bindparam("tenant")),
        column.table.c.seq >= bindparam("first"),
        column.table.c.seq < bindparam(until),
        column.is_not(None),
    )


def _column_of(name: str) -> Column[str]:
    return openings.c.user_id if name == "user_id" else log_entries.c[name]


ROW_OF_SEQS = (
    "seqs[1], CASE WHEN cardinality(seqs) > 1 THEN"
    " (SELECT array_agg((seq - seqs[1])::smallint) FROM unnest(seqs[2:]) AS seq) END"
)
"""The columns `seq` and `more` of a row that names the entries of the array `seqs`, on
PostgreSQL."""


def _insertion_of_arrays(name: str) -> TextClause:
    place, table = FACETS.index(name), "openings" if name == "user_id" else "log_entries"
    return text(
        "INSERT INTO log_index (tenant_id, facet, value, seq, more)"  # noqa: S608  # constants only
        f" SELECT :tenant, {place}, value, {ROW_OF_SEQS}"
        f" FROM (SELECT {name} AS value, array_agg(seq ORDER BY seq) AS seqs FROM {table}"
        f" WHERE tenant_id = :tenant AND seq >= :first AND seq < :until AND {name} IS NOT NULL"
        f" GROUP BY {name}, seq / :step) AS block"
    )


_FINISHED = text("SELECT obj_description('alembic_version'::regclass, 'pg_class') >= :since")
_INSERT_ARRAYS = [_insertion_of_arrays(name) for name in FACETS]
_COLUMNS = ["tenant_id", "facet", "value", "seq"]
_INSERT_FACET = [
    insert(log_index).from_select(_COLUMNS, block_rows(name).order_by("value", "seq"))
    for name in FACETS
]
_DELETE_GROUP = [
    delete(log_index).where(
        of_tenant(log_index, bindparam("tenant")),
        log_index.c.facet == place,
        log_index.c.value.in_(block_rows(name).with_only_columns(_column_of(name))),
        log_index.c.seq >= bindparam("first"),
        log_index.c.seq < bindparam("until"),
    )
    for place, name in enumerate(FACETS)
]
_DELETE_SPAN = delete(log_spans).where(
    of_tenant(log_spans, bindparam("tenant")), log_spans.c.seq == bindparam("first")
)
_INSERT_SPAN = insert(log_spans).from_select(
    ["tenant_id", "seq", "until_seq", "first_ts", "last_ts"],
    select(
        log_entries.c.tenant_id,
        bindparam("first"),
        bindparam("until"),
        func.min(log_entries.c.ts),
        func.max(log_entries.c.ts),
    )
    .where(
        of_tenant(log_entries, bindparam("tenant")),
        log_entries.c.seq >= bindparam("first"),
        log_entries.c.seq < bindparam("until"),
    )
    .group_by(log_entries.c.tenant_id),
)
