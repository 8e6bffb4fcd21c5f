"""The Merkle tree over a range of a log's leaves, and how ranges are joined. Knows nothing of
entries.

A range that begins in the middle of the log can't know the nodes to its left. It keeps the roots of
the largest complete subtrees within itself, at most two for each level of the tree. Appended in
order to the frontier of the tree before the range, they give the frontier after it: the same as if
each leaf had been appended.
"""

import hashlib
from collections.abc import Sequence

from policies.trail.merkle_tree import Frontier
from policies.trail.proofs.nodes import Part

_sha256 = hashlib.sha256
_LEVEL = 3
_SUBTREE = 1 << _LEVEL


class CompactRange:
    """The Merkle tree of a range of a log's leaves, from number `begin` up to `end` (exclusive).
    `hashes` holds the root hashes of its complete subtrees, from left to right."""

    __slots__ = ("begin", "end", "hashes")

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.hashes: list[bytes] = []

    def append(self, leaf: bytes, level: int = 0) -> None:
        """Append a leaf hash, or the root hash of a complete subtree of `2**level` leaves. For a
        subtree, `end` must be a multiple of that number."""
        hashes, begin = self.hashes, self.begin
        place, self.end = self.end >> level, self.end + (1 << level)
        # As in `Frontier.append`, but a subtree whose left half begins before the range stays open.
        while place & 1 and (place - 1) << level >= begin:
            leaf = _sha256(b"\1" + hashes.pop() + leaf).digest()
            place >>= 1
            level += 1
        hashes.append(leaf)

    def extend(self, leaves: Sequence[bytes]) -> None:
        at = 0
        while at < len(leaves):
            if self.end % _SUBTREE == 0 and len(leaves) - at >= _SUBTREE:
                # A subtree's nodes take less time level by level than leaf by leaf.
                self.append(_root(leaves[at : at + _SUBTREE]), _LEVEL)
                at += _SUBTREE
            else:
                self.append(leaves[at])
                at += 1


def _root(nodes: Sequence[bytes]) -> bytes:
    """Return the root hash over nodes of one level, whose number is a power of two."""
    while len(nodes) > 1:
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        nodes = [_sha256(b"\1%b%b" % pair).digest() for pair in pairs]
    return nodes[0]


def extend(tree: Frontier, end: int, hashes: Sequence[bytes]) -> None:
    """Append to `tree` the range of leaves from its size up to `end`, given the root hashes of the
    range's subtrees."""
    for node, root in zip(Part(tree.size, end).nodes(), hashes, strict=True):
        tree.append_subtree(node.level, root)
