"""A tenant's log as its database shows it: the head, the incarnation, the latest published
checkpoint. Believes none of it: `maker` compares it with the checkpoint store.
"""

from operator import index
from typing import Any, NamedTuple

from sqlalchemy import Row, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries import checkpoints
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.schema.log import log_heads
from policies.trail.checkpoint import Checkpoint
from policies.trail.incarnation import is_origin_of
from policies.trail.merkle_tree import Frontier


class LogState(NamedTuple):
    """`log` is empty if the tenant has no log yet; `tree` is None if the head is not a valid one.
    `published` is the latest checkpoint of the current origin, None if there is none that can be
    read."""

    log: str
    origin: str
    size: int
    tree: Frontier | None
    published: StoredCheckpoint | None

    def checkpoint(self) -> Checkpoint:
        """The checkpoint of the log as it is. Only for a head that could be read."""
        assert self.tree is not None
        return Checkpoint(self.origin, self.size, self.tree.root())

    def frontier(self) -> bytes:
        assert self.tree is not None
        return self.tree.to_bytes()


async def read_state(connection: AsyncConnection, tenant_id: str) -> LogState:
    # The order matters: each checkpoint that is read here was published before the head was read,
    # so the head can't be smaller than it unless entries were removed.
    try:
        published = await checkpoints.latest(connection, tenant_id)
    except (ValueError, TypeError):
        # Edited by hand. The rows are read back from the beginning then.
        published = None
    incarnation = await checkpoints.latest_incarnation(connection, tenant_id)
    row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
    log = "" if row is None else str(row.log)
    origin = log
    if incarnation is not None and is_origin_of(incarnation.origin, log):
        origin = incarnation.origin
    if published is not None and published.origin != origin:
        published = None
    size, tree = _tree(row)
    return LogState(log, origin, size, tree, published)


def _tree(row: Row[Any, Any, Any] | None) -> tuple[int, Frontier | None]:
    if row is None:
        return 0, Frontier()
    try:
        size = index(row.size)
        return size, Frontier.from_bytes(size, bytes(memoryview(row.frontier)))
    except (ValueError, TypeError):
        return 0, None


_HEAD = select(log_heads.c.log, log_heads.c.size, log_heads.c.frontier).where(
    log_heads.c.tenant_id == bindparam("tenant")
)
