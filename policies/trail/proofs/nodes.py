"""Names the nodes of an RFC 9162 tree: its subtrees, how the hash of any of them follows from
complete ones, and which nodes are stored.

Those are the nodes of every eighth level, each the root of 256 below it: a 255th of the tree, and
still enough, for any other node follows from at most 255 stored ones. Knows places and hashes.
Doesn't know which subtrees a proof needs, or where hashes are stored.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from policies.trail.merkle_tree import Frontier, node_hash

HASH = 32
MAX_SIZE = 2**63 - 1
"""The largest size of a tree: what fits a signed integer of 64 bits, such as a database's."""


class Node(NamedTuple):
    """A complete subtree: the `2**level` leaves from number `place * 2**level` on. Leaves are level
    0."""

    level: int
    place: int

    def children(self) -> tuple["Node", "Node"]:
        """Return the two halves of the node, whose level must be above 0."""
        return Node(self.level - 1, 2 * self.place), Node(self.level - 1, 2 * self.place + 1)


NodeReader = Callable[[int, int], bytes]
"""A function that returns the hash of the node at a level and place, as in `Node`. It raises an
error of its own if it has none; the functions that take a reader let that pass."""


class Part(NamedTuple):
    """The leaves from `first` up to `end` (exclusive): one hash of a proof stands for them."""

    first: int
    end: int

    def nodes(self) -> Iterator[Node]:
        """Yield the largest complete subtrees that the part consists of, from left to right."""
        first = self.first
        while first < self.end:
            # No larger than fits what is left, and no larger than `first` is a multiple of.
            level = (self.end - first).bit_length() - 1
            if first:
                level = min(level, (first & -first).bit_length() - 1)
            yield Node(level, first >> level)
            first += 1 << level

    def root(self, node: NodeReader) -> bytes:
        """Return the root of the tree over these leaves. `first` must be a multiple of the smallest
        power of two that is not less than their number, as it is for every part of a proof."""
        *others, root = [node(*each) for each in self.nodes()]
        for left in reversed(others):
            root = node_hash(left, root)
        return root


def split(size: int) -> int:
    """Return where RFC 9162 divides a tree of `size` > 1 leaves: the largest power of two below
    `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def frontier_nodes(size: int) -> tuple[Node, ...]:
    """Return the nodes whose hashes are the frontier of a tree of `size` leaves, in its order."""
    return tuple(Part(0, size).nodes())


_sha256 = hashlib.sha256
LEVELS = 8
"""The distance of the levels whose nodes are stored. Leaves are level 0."""
WIDTH = 1 << LEVELS
"""The number of stored nodes that make one node of the next stored level."""


class WideTree:
    """A growing tree that tells which of its nodes are to be stored."""

    def __init__(self, tree: Frontier) -> None:
        """Continues the tree of `tree`, which is left as it is. Raises `ValueError` if its hashes
        don't fit its size."""
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
        """Append leaf hashes. Yields each node to store as soon as its last leaf is appended, with
        its hash. Nothing is appended unless the result is iterated to its end."""
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
    """Return the nodes of the nearest stored level from which `node` follows: their level, the
    place of the first, and the place after the last."""
    height = node.level % LEVELS
    return node.level - height, node.place << height, (node.place + 1) << height


class NodeGap(LookupError):
    """a node follows neither from the known nodes nor from those that could be read"""


class KnownNodes:
    """Nodes whose hashes are known, and those that must be read to compute others."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[int, int], bytes] = {}
        self._absent: set[Node] = set()

    def add_frontier(self, tree: Frontier) -> None:
        """Add the complete subtrees of a tree, for example of what was purged. Raises `ValueError`
        if its hashes don't fit its size."""
        self._hashes.update(zip(frontier_nodes(tree.size), tree.hashes, strict=True))

    def __contains__(self, node: Node) -> bool:
        return node in self._hashes

    def add(self, level: int, place: int, hash_: bytes) -> None:
        """Add nodes that were read: some 500 for a proof, so without a `Node` for each."""
        self._hashes.setdefault((level, place), hash_)

    def mark_absent(self, node: Node) -> None:
        """Say that `node` is not stored: it has to follow from the nodes below it."""
        self._absent.add(node)

    def suffice(self, nodes: Iterable[Node]) -> bool:
        """Return whether `hash` can give all of these nodes."""
        try:
            for node in nodes:
                self.hash(*node)
        except NodeGap:
            return False
        return True

    def lacking(self, node: Node) -> Iterator[Node]:
        """Yield the nodes of stored levels, leaves included, that have to be read before `hash` can
        give this one. Raises `NodeGap` if one of them is a leaf that is marked absent."""
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
        that it lacks was added."""
        node = Node(level, place)
        known = self._hashes.get(node)
        if known is None:
            known = self._hashes[node] = self._from_stored(node) or self._from_children(node)
        return known

    def _from_stored(self, node: Node) -> bytes | None:
        """Return the hash in the usual case, at a third of the cost: every node of the stored level
        is known."""
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
