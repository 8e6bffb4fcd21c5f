"""Queries over the stored nodes of a log's Merkle tree, and over the leaves below them.

    extend(connection, tenant_id, nodes)            stores nodes as the tree grows
    read(connection, tenant_id, wanted, known)      reads the rows from which wanted nodes follow
    stored(connection, tenant_id, nodes)            reads just these nodes, to compare them
    count(connection, tenant_id, places)            counts nodes of 256 leaves, to see what is lost

Verifies nothing: a proof made from these nodes is checked against a signed root by its maker.
"""

from collections.abc import Collection, Iterable
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import BigInteger, Connection, Select, bindparam, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.log import log_entries, tree_nodes
from control_api.store.schema.statements import chunks, insert_into, of_tenant
from policies.trail.proofs.nodes import HASH, LEVELS, WIDTH, KnownNodes, Node, stored_below

MAX_ROWS = 256 * WIDTH
"""The most rows that one `read` may take. A proof needs some 256 on each level; the rest is for
nodes that are missing and have to be computed from the leaves."""


class TooManyRows(Exception):
    """so many nodes are missing that reading what is below them would take too long"""


async def extend(
    connection: AsyncConnection, tenant_id: str, nodes: Iterable[tuple[Node, bytes]]
) -> None:
    """Store nodes, as `WideTree.append_all` yields them. They replace stored ones, because they
    were computed from entries that were just read back."""
    rows = [
        {"tenant_id": tenant_id, "level": node.level // LEVELS, "place": node.place, "hash": hash_}
        for node, hash_ in nodes
    ]
    statement = insert_into(tree_nodes, connection.dialect)
    statement = statement.on_conflict_do_update(
        index_elements=["tenant_id", "level", "place"], set_={"hash": statement.excluded.hash}
    )
    for chunk in chunks(rows):
        await connection.execute(statement, chunk)


async def stored(
    connection: AsyncConnection, tenant_id: str, nodes: Iterable[Node]
) -> dict[Node, bytes]:
    """Return those of these nodes that are stored, with the stored values, even if one is not a
    hash. Reads the range between the first and the last node of each level."""
    places: dict[int, set[int]] = {}
    for node in nodes:
        places.setdefault(node.level, set()).add(node.place)
    found: dict[Node, bytes] = {}
    for level, wanted in places.items():
        span = {"level": level // LEVELS, "first": min(wanted), "until": max(wanted) + 1}
        rows = await connection.execute(_STORED, {"tenant": tenant_id, **span})
        found |= {Node(level, row.place): row.hash for row in rows if row.place in wanted}
    return found


async def count(connection: AsyncConnection, tenant_id: str, places: range) -> int:
    """Return how many of the nodes of 256 leaves at these places are stored."""
    span = {"level": 1, "first": places.start, "until": places.stop}
    return int(await connection.scalar(_COUNT, {"tenant": tenant_id, **span}) or 0)


def read(
    connection: Connection, tenant_id: str, wanted: Collection[Node], known: KnownNodes
) -> None:
    """Add to `known` the stored nodes from which the hashes of `wanted` follow. Usually takes one
    range of at most 256 rows a level. A stored node that is missing is replaced by those below it,
    within `MAX_ROWS`. Raises `NodeGap` if a leaf is gone, `TooManyRows` beyond the limit."""
    reader = _Reader(connection, tenant_id, known)
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for node in wanted:
        if node in known:
            continue
        level, first, end = stored_below(node)
        low, high = spans.get((level, first // WIDTH), (first, end))
        spans[level, first // WIDTH] = min(low, first), max(high, end)
    reader.read([(level, *span) for (level, _), span in spans.items()])
    # Usually that is all. Otherwise find out which nodes are lacking, one by one.
    while not known.suffice(wanted):
        lacking = sorted({each for node in wanted for each in known.lacking(node)})
        for (level, _), group in groupby(lacking, lambda node: (node.level, node.place // WIDTH)):
            nodes = list(group)
            reader.read([(level, nodes[0].place, nodes[-1].place + 1)])
            for node in nodes:
                if node not in known:
                    known.mark_absent(node)


class _Reader:
    """Reads ranges of stored nodes or leaves into `known`, at most `MAX_ROWS` rows in total."""

    def __init__(self, connection: Connection, tenant_id: str, known: KnownNodes) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._known = known
        self._budget = MAX_ROWS

    def read(self, spans: list[tuple[int, int, int]]) -> None:
        """Read ranges, each given by its level, first place and end, all in one statement."""
        if not spans:
            return
        self._budget -= sum(end - first for _, first, end in spans)
        if self._budget < 0:
            raise TooManyRows(f"more than {MAX_ROWS} rows would have to be read")
        stored: dict[str, object] = {"tenant": self._tenant_id}
        for at, (level, first, end) in enumerate(spans):
            stored |= {f"level{at}": level, f"first{at}": first, f"until{at}": end}
            if level:
                stored[f"stored{at}"] = level // LEVELS
        query = _query(tuple(level == 0 for level, _, _ in spans))
        for level, place, hash_ in self._connection.execute(query, stored):
            # A row that holds no hash is as good as none: what is below it may be right.
            if isinstance(hash_, bytes) and len(hash_) == HASH:
                self._known.add(level, place, hash_)


@cache
def _query(leaves: tuple[bool, ...]) -> Any:
    """Return a query that reads several ranges. `leaves` says of each range whether it is one of
    leaves rather than of stored nodes."""
    return union_all(*[_range(at, each) for at, each in enumerate(leaves)])


def _range(at: int, leaves: bool) -> Select[Any]:
    table, place = (log_entries, "seq") if leaves else (tree_nodes, "place")
    level = bindparam(f"level{at}", type_=BigInteger)
    query = select(level, table.c[place], table.c.hash).where(
        of_tenant(table),
        table.c[place] >= bindparam(f"first{at}"),
        table.c[place] < bindparam(f"until{at}"),
    )
    return query if leaves else query.where(tree_nodes.c.level == bindparam(f"stored{at}"))


_SPAN = (
    of_tenant(tree_nodes),
    tree_nodes.c.level == bindparam("level"),
    tree_nodes.c.place >= bindparam("first"),
    tree_nodes.c.place < bindparam("until"),
)
_STORED = select(tree_nodes.c.place, tree_nodes.c.hash).where(*_SPAN)
_COUNT = select(func.count()).select_from(tree_nodes).where(*_SPAN)
