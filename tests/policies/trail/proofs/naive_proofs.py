"""PATH and PROOF of RFC 9162, word for word, over lists of leaf hashes; and a reader of nodes."""

from collections.abc import Sequence
from functools import cache

from policies.trail.proofs.nodes import NodeReader
from tests.policies.world import naive_root as uncached_root


@cache
def _root(leaves: tuple[bytes, ...]) -> bytes:
    return uncached_root(leaves)


def naive_root(leaves: Sequence[bytes]) -> bytes:
    return _root(tuple(leaves))


def _half(size: int) -> int:
    k = 1
    while k * 2 < size:
        k *= 2
    return k


def naive_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH(m, D_n), section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = _half(len(leaves))
    if index < k:
        return [*naive_path(index, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(index - k, leaves[k:]), naive_root(leaves[:k])]


def naive_consistency(old: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PROOF(m, D_n), section 2.1.4.1."""
    return _subproof(old, leaves, True)


def _subproof(old: int, leaves: Sequence[bytes], whole: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if whole else [naive_root(leaves)]
    k = _half(len(leaves))
    if old <= k:
        return [*_subproof(old, leaves[:k], whole), naive_root(leaves[k:])]
    return [*_subproof(old - k, leaves[k:], False), naive_root(leaves[:k])]


def reader(leaves: Sequence[bytes]) -> NodeReader:
    """Reads nodes of the tree over `leaves`; fails for one that is not complete."""

    def node(level: int, index: int) -> bytes:
        first, end = index << level, (index + 1) << level
        assert end <= len(leaves)
        return naive_root(leaves[first:end])

    return node
