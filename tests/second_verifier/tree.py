"""The Merkle tree of RFC 9162: its frontier, its root, and inclusion proofs. Knows only hashes."""

from __future__ import annotations

from hashlib import sha256

EMPTY_ROOT = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry's bytes."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """A growing tree, kept as the roots of its complete subtrees, the largest first."""

    def __init__(self, size: int = 0, frontier: list[bytes] | None = None) -> None:
        self.size = size
        self.frontier = list(frontier or [])

    def append(self, leaf: bytes) -> None:
        """Adds one leaf."""
        node, rest = leaf, self.size
        while rest & 1:
            node = node_hash(self.frontier.pop(), node)
            rest >>= 1
        self.frontier.append(node)
        self.size += 1

    def root(self) -> bytes:
        """The tree's root."""
        return root_of(self.frontier)


def root_of(frontier: list[bytes]) -> bytes:
    """The root of the complete subtrees, the largest first."""
    if not frontier:
        return EMPTY_ROOT
    node = frontier[-1]
    for left in reversed(frontier[:-1]):
        node = node_hash(left, node)
    return node


def included(leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    """RFC 9162, 2.1.3.2: whether the path leads from the leaf at `index` to the root of `size`."""
    if not 0 <= index < size:
        return False
    place, last, node = index, size - 1, leaf
    for step in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            node = node_hash(step, node)
            while not place & 1 and place != 0:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, step)
        place, last = place >> 1, last >> 1
    return last == 0 and node == root


def lefts(index: int, size: int, path: list[bytes]) -> list[bytes]:
    """Those hashes of an inclusion proof that stand on the left: the complete subtrees before the
    leaf, the largest first."""
    found, place, last = [], index, size - 1
    for step in path:
        if place & 1 or place == last:
            found.append(step)
            while not place & 1 and place != 0:
                place, last = place >> 1, last >> 1
        place, last = place >> 1, last >> 1
    return found[::-1]
