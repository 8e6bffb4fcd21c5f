"""A log's tree at the size of one of its checkpoints, read from what is stored as far as a proof
needs it.

The checkpoint's signature is verified here. The nodes are not: a proof made from them holds only if
it leads to the signed root, which `proofs` checks. Knows SQL; doesn't know what a proof consists
of.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row

from control_api.store.queries import checkpoints, tree_nodes
from control_api.store.queries.checkpoints import StoredCheckpoint
from policies.ground.errors import NotFound, SluiceError
from policies.trail import checkpoint
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.subtree import Node, Part
from policies.trail.proofs.wide_tree import KnownNodes
from policies.trail.purge import Anchor


class BrokenTree(SluiceError):
    """what is stored of the log does not lead to its signed checkpoint: run `sluice verify`"""


class SignedTree:
    """The tree of a checkpoint that verified: its `size` and `root`, and the `note` that says
    so."""

    def __init__(self, note: str, size: int, root: bytes) -> None:
        self.note = note
        self.size = size
        self.root = root
        self._known = KnownNodes()

    @classmethod
    def load(
        cls,
        connection: Connection,
        tenant_id: str,
        size: int | None,
        publics: Collection[bytes],
    ) -> "SignedTree | None":
        """The tree of the checkpoint of `size`, or of the latest if it is None; None if there is no
        checkpoint at all. Raises `NotFound` if there is none of this size, and `BrokenTree` if the
        stored one does not verify with `publics`."""
        try:
            row = _checkpoint(connection, tenant_id, size)
        except (ValueError, TypeError) as error:
            raise _unusable(error) from error
        return None if row is None else cls.of(row, publics)

    @classmethod
    def beside(cls, row: Row[Any], publics: Collection[bytes]) -> "SignedTree | None":
        """Like `load` for the latest checkpoint, of a row that `checkpoints.beside` made."""
        try:
            found = checkpoints.from_row(row)
        except (ValueError, TypeError) as error:
            raise _unusable(error) from error
        return None if found is None else cls.of(found, publics)

    @classmethod
    def of(cls, row: StoredCheckpoint, publics: Collection[bytes]) -> "SignedTree":
        """The tree of a stored checkpoint. Raises `BrokenTree` if it does not verify."""
        try:
            at = checkpoint.read(row.note, row.origin, publics)
            found = cls(row.note, at.size, at.root)
            found._known.add_frontier(Frontier.from_bytes(at.size, row.frontier))
        except (ValueError, TypeError) as error:
            # `BadNote` among them.
            raise _unusable(error) from error
        if at.size != row.size:
            raise BrokenTree(f"the checkpoint of size {row.size} signs size {at.size}")
        return found

    def add_anchor(self, anchor: Anchor) -> None:
        """Use the frontier of what was purged. Raises `ValueError` if it doesn't fit its size."""
        self._known.add_frontier(anchor.purged.tree())

    def add_earlier(self, connection: Connection, tenant_id: str, size: int) -> None:
        """Use the frontier of an earlier checkpoint, if one of this size is stored."""
        try:
            row = checkpoints.read_at(connection, tenant_id, size)
            if row is not None:
                self._known.add_frontier(Frontier.from_bytes(size, row.frontier))
        except (ValueError, TypeError) as error:
            raise BrokenTree(f"the stored checkpoint of size {size} can't be used") from error

    def read(self, connection: Connection, tenant_id: str, nodes: Collection[Node]) -> None:
        """Read what these nodes follow from. Raises `NodeGap` if a leaf is gone, and `TooManyRows`
        if the stored nodes are so incomplete that it would take too long."""
        tree_nodes.read(connection, tenant_id, nodes, self._known)

    def roots(self, parts: Collection[Part]) -> list[bytes]:
        """The roots of parts whose nodes were read."""
        return [part.root(self._known.hash) for part in parts]


def _unusable(error: Exception) -> BrokenTree:
    # SQLite lets a column hold anything.
    return BrokenTree(f"a stored checkpoint can't be used: {error}")


def _checkpoint(
    connection: Connection, tenant_id: str, size: int | None
) -> StoredCheckpoint | None:
    latest = checkpoints.read_latest(connection, tenant_id)
    if size is None:
        return latest
    row = checkpoints.read_at(connection, tenant_id, size)
    # Since the last incarnation, the log's checkpoints have another origin. Those before it belong
    # to a log that may have gone on differently.
    if row is None or latest is None or row.origin != latest.origin:
        raise NotFound(
            f"no checkpoint of {size} entries: the list of checkpoints shows those that are kept"
        )
    return row
