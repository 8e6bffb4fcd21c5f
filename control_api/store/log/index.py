"""The search index over log entries, written late and in bulk.

An ordinary index writes a page for nearly every value of every entry; seven such indexes cost four
times as much as the entries themselves. This index is written for a whole block of entries at a
time, sorted, so that one page write serves many entries.

INVARIANT: in a log of `size` entries, the index of facet `place` holds exactly the entries below
`indexed_size(place, size)`. This depends on the size alone, because the index grows in the
transaction that changes the size. A reader scans the last few thousand entries and uses the index
for the rest.

The facets' blocks end at different sizes, so that no transaction has to write all of them.
"""

from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, insert, literal, select

from control_api.store.schema.log import log_entries, log_index, log_spans, openings

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
            connection.execute(_INSERT_SPAN if place == SPAN else _INSERT_FACET[place], block)
            first = end


def block_rows(name: str, until: str = "until") -> Select[Any]:
    """The index rows of facet `name` for the entries from `:first` up to, not including, the
    parameter named by `until`."""
    column = openings.c.user_id if name == "user_id" else log_entries.c[name]
    return select(
        column.table.c.tenant_id,
        literal(FACETS.index(name)).label("facet"),
        column.label("value"),
        column.table.c.seq,
    ).where(
        column.table.c.tenant_id == bindparam("tenant"),
        column.table.c.seq >= bindparam("first"),
        column.table.c.seq < bindparam(until),
        column.is_not(None),
    )


_COLUMNS = ["tenant_id", "facet", "value", "seq"]
_INSERT_FACET = [
    insert(log_index).from_select(_COLUMNS, block_rows(name).order_by("value", "seq"))
    for name in FACETS
]
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
        log_entries.c.tenant_id == bindparam("tenant"),
        log_entries.c.seq >= bindparam("first"),
        log_entries.c.seq < bindparam("until"),
    )
    .group_by(log_entries.c.tenant_id),
)
