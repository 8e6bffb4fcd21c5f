"""Checks the proof at the end of a part: that its entries, and the frontier before them, are the
beginning of a larger log. Knows no note; the caller verifies who signed the root."""

from collections.abc import Sequence

from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import inclusion


def proves_tail(
    tree: Frontier, last_leaf: bytes, size: int, root: bytes, hashes: Sequence[bytes]
) -> bool:
    """Whether the log of `size` entries with this `root` begins with the entries of `tree`, whose
    last leaf is `last_leaf`. `hashes` is the inclusion proof of that leaf."""
    index = tree.size - 1
    if not inclusion.verify(last_leaf, index, size, hashes, root):
        return False
    # The proof's hashes on the left are the complete subtrees before the last leaf: the frontier
    # there, from the smallest to the largest. An inclusion proof alone would not say that the
    # file's own frontier is the same.
    lefts, place, last = [], index, size - 1
    for each in hashes:
        if place & 1 or place == last:
            lefts.append(each)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        place, last = place >> 1, last >> 1
    before = Frontier(index, lefts[::-1])
    before.append(last_leaf)
    return before == tree
