"""Finding entries by what they say: an index that is written late and in bulk.

An ordinary index costs a page write for nearly every value of every entry: seven of them, four
times what the entries themselves cost. This one is filled with a whole block of entries at a time,
sorted, so that a page is written once for many of them.

INVARIANT: in a log of `size` entries, those below `indexed_size(facet, size)` are indexed, and the
others are not. It follows from the size alone and moves in the transaction that moves the size; so
a reader looks at the last few thousand entries themselves, and at the index for the rest.

The facets' blocks end at different sizes: no transaction has to write them all.
"""

from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, insert, literal, select

from control_api.store.schema.tables import log_entries, log_index, log_spans, openings

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
"""INVARIANT: a facet's place is its number in the table, so that none moves or goes."""
SPAN = len(FACETS)
"""The place of the times in the order: `log_spans` is written as an eighth facet would be."""
STEP = BLOCK // (SPAN + 1)


def indexed_size(place: int, size: int) -> int:
    """How many entries of a log of `size` the index holds of the facet at `place`."""
    beyond = size - place * STEP
    return 0 if beyond < 0 else size - beyond % BLOCK


def block_end(place: int, first: int) -> int:
    """Where the block that begins at `first` ends."""
    return indexed_size(place, first + BLOCK)


def due(old_size: int, new_size: int) -> bool:
    """Whether `extend` has anything to do."""
    return any(indexed_size(at, old_size) < indexed_size(at, new_size) for at in range(SPAN + 1))


def extend(connection: Connection, tenant_id: str, old_size: int, new_size: int) -> None:
    """What is due once the log has grown; in the transaction that lets it grow, which may have
    filled several blocks."""
    for place in range(SPAN + 1):
        first, until = indexed_size(place, old_size), indexed_size(place, new_size)
        while first < until:
            # A span of time is one block's, so every facet goes block by block.
            end = block_end(place, first)
            block = {"tenant": tenant_id, "first": first, "until": end}
            connection.execute(_SPAN if place == SPAN else _FACETS[place], block)
            first = end


def _said(name: str) -> Any:
    return openings.c.user_id if name == "user_id" else log_entries.c[name]


def block_rows(name: str, until: str = "until") -> Select[Any]:
    """The rows of the facet `name` for the entries from `:first` to before `:until`, the parameter
    of that name."""
    column = _said(name)
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


_INDEXED = ["tenant_id", "facet", "value", "seq"]
_FACETS = [
    insert(log_index).from_select(_INDEXED, block_rows(name).order_by("value", "seq"))
    for name in FACETS
]
_SPAN = insert(log_spans).from_select(
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
