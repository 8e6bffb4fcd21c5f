"""The subtrees of an RFC 9162 tree, and how the hash of any of them follows from complete ones.

Knows places and hashes. Doesn't know which subtrees a proof needs, or where hashes are stored.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from policies.trail.merkle_tree import node_hash

HASH = 32
MAX_SIZE = 2**63 - 1
"""The largest size of a tree: what fits a signed integer of 64 bits, such as a database's."""


class Node(NamedTuple):
    """A complete subtree: the `2**level` leaves from number `place * 2**level` on. Leaves are level
    0."""

    level: int
    place: int

    def children(self) -> tuple["Node", "Node"]:
        """The two halves. Only for a level above 0."""
        return Node(self.level - 1, 2 * self.place), Node(self.level - 1, 2 * self.place + 1)


NodeReader = Callable[[int, int], bytes]
"""Gives the hash of the node at a level and place, as in `Node`. Raises what it likes if it has
none; the functions that take one let that pass."""


class Part(NamedTuple):
    """The leaves from `first` up to, not including, `end`: one hash of a proof stands for them."""

    first: int
    end: int

    def nodes(self) -> Iterator[Node]:
        """The largest complete subtrees that the part consists of, from left to right."""
        first = self.first
        while first < self.end:
            # No larger than fits what is left, and no larger than `first` is a multiple of.
            level = (self.end - first).bit_length() - 1
            if first:
                level = min(level, (first & -first).bit_length() - 1)
            yield Node(level, first >> level)
            first += 1 << level

    def root(self, node: NodeReader) -> bytes:
        """The root of the tree over these leaves. `first` must be a multiple of the smallest power
        of two that is not less than their number, as it is for every part of a proof."""
        *others, root = [node(*each) for each in self.nodes()]
        for left in reversed(others):
            root = node_hash(left, root)
        return root


def split(size: int) -> int:
    """Where RFC 9162 divides a tree of `size` > 1 leaves: the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def frontier_nodes(size: int) -> tuple[Node, ...]:
    """The nodes whose hashes are the frontier of a tree of `size` leaves, in its order."""
    return tuple(Part(0, size).nodes())
