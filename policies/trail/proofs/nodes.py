"""Names the nodes of an RFC 9162 tree: its subtrees, how the hash of any of them follows from
complete ones, and which nodes are stored.

Stored are the nodes of every eighth level, each the root of 256 nodes of the level below. That is a
255th of the tree, and still enough, for any other node follows from at most 255 stored ones. Knows
positions and hashes. Doesn't know which subtrees a proof needs, or where hashes are stored.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from policies.trail.merkle_tree import Frontier, node_hash

HASH = 32
MAX_SIZE = 2**63 - 1
"""The largest number of leaves of a tree: the largest signed integer of 64 bits, so that a database
can hold it."""


class Node(NamedTuple):
    """A node of the tree, which is the root of a complete subtree: the `2**level` leaves from
    number `place * 2**level` on. Leaves have level 0."""

    level: int
    place: int

    def children(self) -> tuple["Node", "Node"]:
        """Return the node's left and right child. Its level must be above 0."""
        return Node(self.level - 1, 2 * self.place), Node(self.level - 1, 2 * self.place + 1)


NodeReader = Callable[[int, int], bytes]
"""A function that takes a level and a place, as in `Node`, and returns the hash of that node. It
may raise an error of its own if it has no such hash; the functions that take a reader let that
error pass."""


class Part(NamedTuple):
    """A range of a tree's leaves, from `first` up to `end` (exclusive). In a proof, one hash stands
    for each such range."""

    first: int
    end: int

    def nodes(self) -> Iterator[Node]:
        """Yield the largest complete subtrees that the range consists of, from left to right."""
        first = self.first
        while first < self.end:
            # No larger than fits what is left, and no larger than `first` is a multiple of.
            level = (self.end - first).bit_length() - 1
            if first:
                level = min(level, (first & -first).bit_length() - 1)
            yield Node(level, first >> level)
            first += 1 << level

    def root(self, node: NodeReader) -> bytes:
        """Return the root hash over the range's leaves; `node` gives the hashes. `first` must be a
        multiple of the smallest power of two that is not less than their number, as it is for every
        part of a proof."""
        *others, root = [node(*each) for each in self.nodes()]
        for left in reversed(others):
            root = node_hash(left, root)
        return root


def split(size: int) -> int:
    """Return how many leaves RFC 9162 puts into the left half of a tree of `size` > 1 leaves: the
    largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def frontier_nodes(size: int) -> tuple[Node, ...]:
    """Return the nodes whose hashes make up the frontier of a tree of `size` leaves, in the
    frontier's order."""
    return tuple(Part(0, size).nodes())


_sha256 = hashlib.sha256
LEVELS = 8
"""The distance between two levels whose nodes are stored. Leaves are level 0."""
WIDTH = 1 << LEVELS
"""The number of stored nodes below one node of the next stored level."""


class WideTree:
    """A Merkle tree to which leaves are appended, and which says which of its nodes have to be
    stored."""

    def __init__(self, tree: Frontier) -> None:
        """Continue the tree whose frontier is `tree`, which is left as it is. Raises `ValueError`
        if its hashes don't fit its size."""
        # One small frontier for each stored level: of the nodes that have no parent there yet.
        self._levels: list[Frontier] = []
        nodes = zip(frontier_nodes(tree.size), tree.hashes, strict=True)
        for node, hash_ in nodes:
            level, height = divmod(node.level, LEVELS)
            while len(self._levels) <= level:
                self._levels.append(Frontier())
            # From the largest subtree to the smallest, as in a frontier.
            self._levels[level].hashes.append(hash_)
            self._levels[level].size += 1 << height
        self.size = tree.size

    def append_all(self, leaves: Iterable[bytes]) -> Iterator[tuple[Node, bytes]]:
        """Append leaf hashes. Yields each node that has to be stored, with its hash, as soon as its
        last leaf is appended. The leaves are appended only while the result is iterated: iterate it
        to its end."""
        for leaf in leaves:
            self.size += 1
            hash_, level = leaf, 0
            while True:
                if level == len(self._levels):
                    self._levels.append(Frontier())
                part = self._levels[level]
                part.append(hash_)
                if part.size < WIDTH:
                    break
                (hash_,) = part.hashes
                part.hashes.clear()
                part.size, level = 0, level + 1
                yield Node(level * LEVELS, (self.size >> level * LEVELS) - 1), hash_

    def frontier(self) -> Frontier:
        """Return the frontier of the whole tree."""
        return Frontier(
            self.size, [each for part in reversed(self._levels) for each in part.hashes]
        )


def stored_below(node: Node) -> tuple[int, int, int]:
    """Return the nodes of the nearest stored level from which the hash of `node` follows, as their
    level, the place of the first, and the place after the last."""
    height = node.level % LEVELS
    return node.level - height, node.place << height, (node.place + 1) << height


class NodeGap(LookupError):
    """a node follows neither from the known nodes nor from those that could be read"""


class KnownNodes:
    """A collection of tree nodes whose hashes are known. It computes the hashes of other nodes from
    them, and tells which nodes have to be read for that."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[int, int], bytes] = {}
        self._absent: set[Node] = set()

    def add_frontier(self, tree: Frontier) -> None:
        """Add the complete subtrees of a tree, for example of the entries that were purged. Raises
        `ValueError` if its hashes don't fit its size."""
        self._hashes.update(zip(frontier_nodes(tree.size), tree.hashes, strict=True))

    def __contains__(self, node: Node) -> bool:
        return node in self._hashes

    def add(self, level: int, place: int, hash_: bytes) -> None:
        """Add the hash of a node that was read. Takes no `Node`, since a proof reads some 500
        nodes."""
        self._hashes.setdefault((level, place), hash_)

    def mark_absent(self, node: Node) -> None:
        """Note that `node` is not stored, so that its hash has to be computed from the nodes below
        it."""
        self._absent.add(node)

    def suffice(self, nodes: Iterable[Node]) -> bool:
        """Return whether the known nodes suffice for `hash` to compute all of these nodes."""
        try:
            for node in nodes:
                self.hash(*node)
        except NodeGap:
            return False
        return True

    def lacking(self, node: Node) -> Iterator[Node]:
        """Yield the stored nodes, leaves included, that have to be read before `hash` can compute
        `node`. Raises `NodeGap` if one of them is a leaf that is marked absent."""
        if node in self._hashes:
            return
        if node.level % LEVELS == 0 and node not in self._absent:
            yield node
            return
        if not node.level:
            raise NodeGap(f"leaf {node.place} is gone")
        for child in node.children():
            yield from self.lacking(child)

    def hash(self, level: int, place: int) -> bytes:
        """Return the hash of a node, as a `NodeReader` does. Raises `NodeGap` unless every node
        that `lacking` yields for it was added."""
        node = Node(level, place)
        known = self._hashes.get(node)
        if known is None:
            known = self._hashes[node] = self._from_stored(node) or self._from_children(node)
        return known

    def _from_stored(self, node: Node) -> bytes | None:
        """Return the hash of a node if every node of the stored level below it is known, None
        otherwise. This is the usual case, and costs a third of `_from_children`."""
        level, first, end = stored_below(node)
        found = [self._hashes.get((level, place)) for place in range(first, end)]
        row = [each for each in found if each is not None]
        if len(row) < len(found):
            return None
        while len(row) > 1:
            pairs = zip(row[::2], row[1::2], strict=True)
            row = [_sha256(b"\1" + left + right).digest() for left, right in pairs]
        return row[0]

    def _from_children(self, node: Node) -> bytes:
        if not node.level:
            raise NodeGap(f"leaf {node.place} is not known")
        left, right = node.children()
        return node_hash(self.hash(*left), self.hash(*right))
