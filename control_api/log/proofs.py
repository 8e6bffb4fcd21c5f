"""Proves to people who hold a checkpoint that an entry is in the log, and that the log has only
grown since an earlier checkpoint.

Nothing that is stored is trusted: the entry is hashed again, the checkpoint's signature is
verified, and a proof is given out only if it leads to the signed root.
"""

from collections.abc import Collection, Iterable
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import Connection, Row, bindparam, select

from control_api.store.queries import checkpoints, purges, tree_nodes
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.queries.tree_nodes import TooManyRows
from control_api.store.schema.log import entries_with_openings, log_entries, openings
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.errors import Conflict, NotFound, SluiceError, Unavailable
from policies.trail import checkpoint
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.nodes import WIDTH, KnownNodes, Node, NodeGap, Part, frontier_nodes
from policies.trail.removal import Anchor


class BrokenTree(SluiceError):
    """what is stored of the log does not lead to its signed checkpoint: run `sluice verify`"""


class SignedTree:
    """The tree of a checkpoint that verified: its `size` and `root`, and the signed `note` that
    states them."""

    def __init__(self, note: str, size: int, root: bytes) -> None:
        self.note = note
        self.size = size
        self.root = root
        self._known = KnownNodes()

    @classmethod
    def load(
        cls, connection: Connection, tenant_id: str, size: int | None, publics: Collection[bytes]
    ) -> "SignedTree | None":
        """Return the tree of the checkpoint of `size`, or of the latest if that is None; None if
        there is no checkpoint at all. Raises `NotFound` if there is none of this size, and
        `BrokenTree` if the stored one does not verify with `publics`."""
        try:
            row = _checkpoint(connection, tenant_id, size)
        except (ValueError, TypeError) as error:
            raise _unusable(error) from error
        return None if row is None else cls.of(row, publics)

    @classmethod
    def beside(cls, row: Row[Any], publics: Collection[bytes]) -> "SignedTree | None":
        """Return the tree of the latest checkpoint like `load`, from a row that
        `checkpoints.beside` has joined."""
        try:
            found = checkpoints.from_row(row)
        except (ValueError, TypeError) as error:
            raise _unusable(error) from error
        return None if found is None else cls.of(found, publics)

    @classmethod
    def of(cls, row: StoredCheckpoint, publics: Collection[bytes]) -> "SignedTree":
        """Return the tree of a stored checkpoint. Raises `BrokenTree` if the checkpoint does not
        verify."""
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
        """Add the frontier of the purged prefix to the known nodes. Raises `ValueError` if it
        doesn't fit its size."""
        self._known.add_frontier(anchor.purged.tree())

    def add_earlier(self, connection: Connection, tenant_id: str, size: int) -> None:
        """Add the frontier of an earlier checkpoint to the known nodes, if a checkpoint of this
        size is stored."""
        try:
            row = checkpoints.read_at(connection, tenant_id, size)
            if row is not None:
                self._known.add_frontier(Frontier.from_bytes(size, row.frontier))
        except (ValueError, TypeError) as error:
            raise BrokenTree(f"the stored checkpoint of size {size} can't be used") from error

    def read(self, connection: Connection, tenant_id: str, nodes: Collection[Node]) -> None:
        """Read the stored rows from which these nodes of the tree follow. Raises `NodeGap` if a
        leaf is gone, and `TooManyRows` if the stored nodes are so incomplete that it would take too
        long."""
        tree_nodes.read(connection, tenant_id, nodes, self._known)

    def roots(self, parts: Collection[Part]) -> list[bytes]:
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


class NotCovered(Conflict):
    """no checkpoint covers this yet; one is signed within seconds"""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "5"}


class IncompleteTree(Unavailable):
    """rows of the table `tree_nodes` are missing: the scheduled verification makes them again. It
    begins within 70 minutes, and takes some 20 minutes for a million entries (an export of the
    whole log, and its verification, need none)"""


class ProvenEntry(NamedTuple):
    """An entry with the proof that it is in the log: its bytes, its openings if any are stored, its
    number, the hashes of the inclusion proof, and the signed note whose root they lead to."""

    entry: bytes
    openings: bytes | None
    seq: int
    hashes: list[bytes]
    note: str


class ProvenGrowth(NamedTuple):
    """A proof that the log of `old_size` entries is the beginning of that of `new_size`: the hashes
    of the consistency proof, and the signed note of `new_size`."""

    old_size: int
    new_size: int
    hashes: list[bytes]
    note: str


async def prove_entry(
    store: Store, tenant_id: str, event_id: str, size: int | None, publics: Collection[bytes]
) -> ProvenEntry:
    """Return the entry with this id, of any kind, with the proof that it is in the log's checkpoint
    of `size` (None: the latest). Raises `NotFound`, `NotCovered`, `IncompleteTree` or
    `BrokenTree`."""

    def work(connection: Connection) -> tuple[Row[Any], SignedTree, list[Part]]:
        row = connection.execute(_ENTRY, {"tenant": tenant_id, "eid": event_id}).first()
        # A purge hides entries as soon as it is committed, before it removes their rows.
        if row is None or row.seq < row.kept:
            raise NotFound(f"no such event: `{event_id}`")
        anchor = _anchor(connection, tenant_id) if row.kept else None
        tree = (
            SignedTree.beside(row, publics)
            if size is None
            else SignedTree.load(connection, tenant_id, size, publics)
        )
        if tree is None or tree.size <= row.seq:
            raise NotCovered(_not_covered(row.seq, size))
        parts = tree_proofs.inclusion_parts(row.seq, tree.size)
        _read(connection, tenant_id, tree, anchor, _nodes(parts))
        return row, tree, parts

    row, tree, parts = await store.run_snapshot(tenant_id, work)
    hashes = tree.roots(parts)
    leaf = leaf_hash(row.entry)
    if not tree_proofs.proves_inclusion(leaf, row.seq, tree.size, hashes, tree.root):
        raise _broken(f"entry {row.seq}", tree)
    return ProvenEntry(row.entry, row.openings, row.seq, hashes, tree.note)


async def prove_growth(
    store: Store, tenant_id: str, old_size: int, new_size: int | None, publics: Collection[bytes]
) -> ProvenGrowth:
    """Prove that the log's first `old_size` entries are the beginning of its checkpoint of
    `new_size` (None: the latest). Raises `NotCovered` or `NotFound` without such a checkpoint,
    `Conflict` if it is smaller than `old_size` or the entries needed were purged, `IncompleteTree`
    or `BrokenTree`."""

    def work(connection: Connection) -> tuple[SignedTree, list[Part]]:
        tree = SignedTree.load(connection, tenant_id, new_size, publics)
        if tree is None:
            raise NotCovered("the log has no checkpoint yet; one is signed within seconds")
        if old_size > tree.size:
            raise Conflict(
                f"the log's latest checkpoint has {tree.size} entries, fewer than {old_size}: if"
                " you hold a signed checkpoint of that size, the log was rolled back since"
            )
        # Everything begins with nothing.
        parts = tree_proofs.consistency_parts(old_size, tree.size) if old_size else []
        if old_size:
            _read_growth(connection, tenant_id, tree, parts, old_size)
        return tree, parts

    tree, parts = await store.run_snapshot(tenant_id, work)
    if not old_size:
        return ProvenGrowth(0, tree.size, [], tree.note)
    hashes, (old_root,) = tree.roots(parts), tree.roots([Part(0, old_size)])
    if not tree_proofs.proves_consistency(old_size, old_root, tree.size, tree.root, hashes):
        raise _broken(f"the first {old_size} entries", tree)
    return ProvenGrowth(old_size, tree.size, hashes, tree.note)


def _read_growth(
    connection: Connection, tenant_id: str, tree: SignedTree, parts: list[Part], old_size: int
) -> None:
    anchor = _anchor(connection, tenant_id)
    tree.add_earlier(connection, tenant_id, old_size)
    wanted = {*_nodes(parts), *frontier_nodes(old_size)}
    try:
        _read(connection, tenant_id, tree, anchor, wanted)
    except BrokenTree:
        if anchor is None or old_size >= anchor.purged.size:
            raise
        raise Conflict(_purged(old_size, anchor)) from None


def _anchor(connection: Connection, tenant_id: str) -> Anchor | None:
    try:
        row = connection.execute(purges.NEWEST, {"tenant": tenant_id}).one_or_none()
        return None if row is None else purges.anchor_of(row)
    except (ValueError, TypeError) as error:
        raise BrokenTree("the anchor of the log can't be read") from error


def _read(
    connection: Connection,
    tenant_id: str,
    tree: SignedTree,
    anchor: Anchor | None,
    wanted: Collection[Node],
) -> None:
    try:
        if anchor is not None:
            tree.add_anchor(anchor)
        tree.read(connection, tenant_id, wanted)
    except TooManyRows as error:
        raise IncompleteTree(
            f"{error}: {' '.join((IncompleteTree.__doc__ or '').split())}"
        ) from error
    except (NodeGap, ValueError) as error:
        raise BrokenTree(f"{BrokenTree.__doc__}: {error}") from error


def _nodes(parts: Iterable[Part]) -> set[Node]:
    return {node for part in parts for node in part.nodes()}


def _not_covered(seq: int, size: int | None) -> str:
    if size is None:
        return f"entry {seq} is not covered by a checkpoint yet; one is signed within seconds"
    return f"the checkpoint of size {size} ends before entry {seq}: leave out `size`"


def _purged(old_size: int, anchor: Anchor) -> str:
    size, below = anchor.purged.size, old_size // WIDTH * WIDTH
    nearest = [str(each) for each in (below, min(below + WIDTH, size)) if each]
    return (
        f"the first {size} entries were purged, and with them what proves consistency from size"
        f" {old_size}: that is possible from {size} on, and below it from multiples of {WIDTH}. The"
        f" nearest such sizes are {' and '.join(nearest)}"
    )


def _broken(what: str, tree: SignedTree) -> BrokenTree:
    return BrokenTree(
        f"{what} can't be proven in the checkpoint of {tree.size}: {BrokenTree.__doc__}"
    )


_ENTRY = (
    select(
        log_entries.c.seq,
        log_entries.c.entry,
        openings.c.openings,
        purges.first_kept(log_entries.c.tenant_id).label("kept"),
        *checkpoints.COLUMNS,
    )
    .select_from(checkpoints.beside(entries_with_openings, log_entries.c.tenant_id))
    .where(of_tenant(log_entries), log_entries.c.eid == bindparam("eid"))
)
