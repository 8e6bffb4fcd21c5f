"""Reads a log's entries back from the database and hashes them again, before they are signed.

Flat memory: a page at a time, between which the service's other tasks run. Compares the tree with
the checkpoints that it has to pass through. Knows nothing of signatures.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Select, bindparam, select

from control_api.store.schema.log import log_entries
from control_api.store.store import Store
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import Frontier, leaf_hash

FIRST_ROWS, MAX_ROWS = 50, 200
"""The rows of the first page, and the most of any: they are hashed without a pause, in about a
millisecond."""
PAGE_BYTES = 512 * 1024
PAUSE = 0.001
"""Seconds between two pages, for other tasks."""


class EntriesMissing(Exception):
    """entries below the head have no row"""


class RootDiffers(Exception):
    """the entries have another root than the checkpoint of their size"""

    def __init__(self, size: int) -> None:
        super().__init__(f"the entries up to {size} have another root than their checkpoint")
        self.size = size


async def read_back(
    store: Store, tenant_id: str, tree: Frontier, until: int, expected: Iterable[Checkpoint]
) -> None:
    """Appends the entries from `tree.size` up to `until` to `tree`. Raises `RootDiffers` at the
    first checkpoint whose root the tree doesn't have, and `EntriesMissing`."""
    stops = {each.size: each.root for each in expected if each.size >= tree.size}
    limit = FIRST_ROWS
    _compare(tree, stops)
    while tree.size < until:
        page = {"tenant": tenant_id, "first": tree.size, "until": until, "rows": limit}
        # A transaction for each page: a long-lived reader would keep SQLite from folding its WAL.
        async with store.reading(tenant_id) as connection:
            rows = (await connection.execute(_PAGE, page)).all()
        # `seq` is unique and ordered, so first and last tell whether one is missing.
        if not rows or rows[0].seq != tree.size or rows[-1].seq != tree.size + len(rows) - 1:
            raise EntriesMissing
        try:
            for row in rows:
                tree.append(leaf_hash(row.entry))
                if tree.size in stops:
                    _compare(tree, stops)
        except TypeError:  # SQLite keeps what is no bytes, if someone puts it there
            raise EntriesMissing from None
        weight = sum(len(row.entry) for row in rows)
        limit = max(1, min(MAX_ROWS, PAGE_BYTES * len(rows) // max(1, weight)))
        await asyncio.sleep(PAUSE)


def _compare(tree: Frontier, stops: dict[int, bytes]) -> None:
    root = stops.get(tree.size)
    if root is not None and root != tree.root():
        raise RootDiffers(tree.size)


_PAGE: Select[Any] = (
    select(log_entries.c.seq, log_entries.c.entry)
    .where(
        log_entries.c.tenant_id == bindparam("tenant"),
        log_entries.c.seq >= bindparam("first"),
        log_entries.c.seq < bindparam("until"),
    )
    .order_by(log_entries.c.seq)
    .limit(bindparam("rows"))
)
