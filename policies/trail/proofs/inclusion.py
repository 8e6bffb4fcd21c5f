"""Inclusion proofs: that a leaf is number `index` in the tree of a given root (RFC 9162, 2.1.3).

    hashes = make(index, size, node)
    verify(leaf, index, size, hashes, root)

Knows hashes and places. Doesn't know entries, or whether anything signed the root.
"""

from collections.abc import Sequence

from policies.trail.merkle_tree import node_hash
from policies.trail.proofs.subtree import HASH, MAX_SIZE, NodeReader, Part, split


def parts(index: int, size: int) -> list[Part]:
    """The subtrees whose roots are the proof, from the leaf's sibling to the root's child: at most
    63. Raises `ValueError` unless `0 <= index < size <= MAX_SIZE`."""
    if not 0 <= index < size <= MAX_SIZE:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    found = []
    first, end = 0, size
    # From the root down to the leaf, by RFC 9162's recursion; each step leaves one half behind.
    while end - first > 1:
        middle = first + split(end - first)
        if index < middle:
            found.append(Part(middle, end))
            end = middle
        else:
            found.append(Part(first, middle))
            first = middle
    found.reverse()
    return found


def make(index: int, size: int, node: NodeReader) -> list[bytes]:
    """The proof for leaf `index` in the tree of `size` leaves. Raises `ValueError` like `parts`,
    and what `node` raises. Check it with `verify` before it goes to anyone: the nodes may be
    wrong."""
    return [part.root(node) for part in parts(index, size)]


def verify(leaf: bytes, index: int, size: int, hashes: Sequence[bytes], root: bytes) -> bool:
    """Whether `hashes` prove that leaf number `index` of the tree of `size` leaves and with this
    root is `leaf`, a leaf hash. False for anything that is not such a proof; never raises."""
    if not 0 <= index < size <= MAX_SIZE or any(len(each) != HASH for each in (leaf, *hashes)):
        return False
    # RFC 9162, 2.1.3.2. `place` is the current node's, `last` that of the rightmost node on its
    # level.
    place, last, hash_ = index, size - 1, leaf
    for each in hashes:
        if not last:
            return False  # longer than the path
        if place & 1 or place == last:
            hash_ = node_hash(each, hash_)
            # A right edge that is a lone left child has no sibling there, and so no hash.
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            hash_ = node_hash(hash_, each)
        place, last = place >> 1, last >> 1
    return not last and hash_ == root
