"""Consistency proofs: that the tree of one size is the beginning of the tree of another (RFC 9162,
2.1.4).

    hashes = make(old_size, new_size, node)
    verify(old_size, old_root, new_size, new_root, hashes)

Knows hashes and places. Doesn't know whether anything signed the roots.
"""

from collections.abc import Sequence

from policies.trail.merkle_tree import node_hash
from policies.trail.proofs.subtree import HASH, MAX_SIZE, NodeReader, Part, split


def parts(old_size: int, new_size: int) -> list[Part]:
    """The subtrees whose roots are the proof, in its order: at most 64, and none for equal sizes.
    Raises `ValueError` unless `0 < old_size <= new_size <= MAX_SIZE`: everything is consistent with
    an empty tree, so there is no proof from 0."""
    if not 0 < old_size <= new_size <= MAX_SIZE:
        raise ValueError(f"there is no consistency proof from size {old_size} to {new_size}")
    found = []
    first, end = 0, new_size
    # RFC 9162's SUBPROOF: down to the subtree that ends where the old tree does.
    while end != old_size:
        middle = first + split(end - first)
        if old_size <= middle:
            found.append(Part(middle, end))
            end = middle
        else:
            found.append(Part(first, middle))
            first = middle
    # The verifier knows that subtree's root only if it is the whole old tree.
    if first:
        found.append(Part(first, end))
    found.reverse()
    return found


def make(old_size: int, new_size: int, node: NodeReader) -> list[bytes]:
    """The proof from the tree of `old_size` leaves to that of `new_size`. Raises `ValueError` like
    `parts`, and what `node` raises. Check it with `verify` before it goes to anyone: the nodes may
    be wrong."""
    return [part.root(node) for part in parts(old_size, new_size)]


def verify(
    old_size: int, old_root: bytes, new_size: int, new_root: bytes, hashes: Sequence[bytes]
) -> bool:
    """Whether `hashes` prove that the tree with `old_root` is the beginning of the tree with
    `new_root`. False for anything that is not such a proof, `old_size` 0 included; never raises."""
    if not 0 < old_size <= new_size <= MAX_SIZE:
        return False
    if any(len(each) != HASH for each in (old_root, new_root, *hashes)):
        return False
    if old_size == new_size:
        return not hashes and old_root == new_root
    # RFC 9162, 2.1.4.2. A complete old tree is itself the first node, and left out of the proof.
    path = list(hashes) if old_size & (old_size - 1) else [old_root, *hashes]
    if not path:
        return False
    place, last = old_size - 1, new_size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = path[0]
    for each in path[1:]:
        if not last:
            return False  # longer than the path
        if place & 1 or place == last:
            old, new = node_hash(each, old), node_hash(each, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            # What lies to the right of the old tree is only in the new one.
            new = node_hash(new, each)
        place, last = place >> 1, last >> 1
    return not last and (old, new) == (old_root, new_root)
