"""The tree as it is stored: which nodes, and that every proof follows from them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.trail.merkle_tree import Frontier, leaf_hash, node_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.nodes import (
    LEVELS,
    WIDTH,
    KnownNodes,
    Node,
    NodeGap,
    Part,
    WideTree,
    frontier_nodes,
)
from tests.support.properties import examples

# More than one node of the second stored level.
SIZE = WIDTH * WIDTH + 3 * WIDTH + 77
LEAVES = [leaf_hash(b"%d" % n) for n in range(SIZE)]


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Every complete node, by level."""
    found = [list(leaves)]
    while len(found[-1]) > 1:
        below = found[-1]
        found.append([node_hash(*below[at : at + 2]) for at in range(0, len(below) - 1, 2)])
    return found


TREE = levels(LEAVES)
STORED = {
    Node(level, place): hash_
    for level in (LEVELS, 2 * LEVELS)
    for place, hash_ in enumerate(TREE[level])
}


def frontier_of(size: int) -> Frontier:
    return Frontier(size, [TREE[level][place] for level, place in frontier_nodes(size)])


ROOTS = {size: frontier_of(size).root() for size in (1, 255, 256, 300, 65536, 65537, SIZE)}


def test_the_nodes_of_every_eighth_level_are_stored_once() -> None:
    tree = WideTree(Frontier())
    assert list(tree.append_all(LEAVES)) == sorted(
        STORED.items(), key=lambda item: ((item[0].place + 1) << item[0].level, item[0].level)
    )
    assert tree.size == SIZE
    assert tree.frontier() == frontier_of(SIZE)


@pytest.mark.parametrize("stops", [[1, 255, 256], [300, 65_535], [65_536, 65_537, 66_000]])
def test_a_tree_is_continued_from_its_frontier(stops: list[int]) -> None:
    found: list[tuple[Node, bytes]] = []
    tree = Frontier()
    for first, end in zip([0, *stops], [*stops, SIZE], strict=True):
        wide = WideTree(tree)
        found += wide.append_all(LEAVES[first:end])
        tree = wide.frontier()
    assert dict(found) == STORED
    assert len(found) == len(STORED)


def test_hashes_that_do_not_fit_the_size_are_refused() -> None:
    for tree in (Frontier(3, LEAVES[:1]), Frontier(4, LEAVES[:2])):
        with pytest.raises(ValueError, match="zip"):
            WideTree(tree)
        with pytest.raises(ValueError, match="zip"):
            KnownNodes().add_frontier(tree)


def read(
    known: KnownNodes, parts: list[Part], *, kept: int = 0, lost: frozenset[Node] = frozenset()
) -> int:
    """Reads what the parts lack, as the store does; returns how many nodes it read."""
    wanted, count = [node for part in parts for node in part.nodes()], 0
    while lacking := {each for node in wanted for each in known.lacking(node)}:
        for node in lacking:
            gone = node in lost or (not node.level and node.place < kept)
            known.mark_absent(node) if gone else known.add(*node, TREE[node.level][node.place])
        count += len(lacking)
    return count


@given(st.data(), st.sampled_from([255, 256, 300, 65536, 65537, SIZE]))
@examples(300)
def test_every_proof_follows_from_few_stored_nodes(data: st.DataObject, size: int) -> None:
    index = data.draw(st.integers(0, size - 1))
    known, parts = KnownNodes(), tree_proofs.inclusion_parts(index, size)
    known.add_frontier(frontier_of(size))
    assert read(known, parts) <= 3 * (WIDTH - 1)
    hashes = tree_proofs.inclusion_proof(index, size, known.hash)
    assert tree_proofs.proves_inclusion(LEAVES[index], index, size, hashes, ROOTS[size])
    known, parts = KnownNodes(), tree_proofs.consistency_parts(index + 1, size)
    known.add_frontier(frontier_of(size))
    assert read(known, [*parts, Part(0, index + 1)]) <= 3 * (WIDTH - 1)
    hashes, old = tree_proofs.consistency_proof(index + 1, size, known.hash), Part(0, index + 1)
    assert tree_proofs.proves_consistency(
        index + 1, old.root(known.hash), size, ROOTS[size], hashes
    )


@pytest.mark.deep(stands_in="test_a_few_proofs_survive_the_purge_of_earlier_entries")
@given(st.data(), st.integers(1, SIZE - 1))
@examples(300)
def test_a_proof_survives_the_purge_of_earlier_entries(data: st.DataObject, kept: int) -> None:
    index = data.draw(st.integers(kept, SIZE - 1) | st.integers(kept, min(kept + 300, SIZE - 1)))
    check_purged(kept, index)


@pytest.mark.parametrize(
    ("kept", "index"), [(1, 1), (255, 256), (300, 400), (65_537, 65_600), (SIZE - 2, SIZE - 1)]
)
def test_a_few_proofs_survive_the_purge_of_earlier_entries(kept: int, index: int) -> None:
    check_purged(kept, index)


def check_purged(kept: int, index: int) -> None:
    """Prove a leaf once all before `kept` are gone."""
    # Also where no node below the cut was ever stored: the purge came before this version.
    never = frozenset(node for node in STORED if (node.place + 1) << node.level <= kept)
    for lost in (frozenset[Node](), never):
        known, parts = KnownNodes(), tree_proofs.inclusion_parts(index, SIZE)
        known.add_frontier(frontier_of(SIZE))
        known.add_frontier(frontier_of(kept))
        read(known, parts, kept=kept, lost=lost)
        hashes = tree_proofs.inclusion_proof(index, SIZE, known.hash)
        assert tree_proofs.proves_inclusion(LEAVES[index], index, SIZE, hashes, ROOTS[SIZE])
        read(known, tree_proofs.consistency_parts(index, SIZE), kept=kept, lost=lost)
        hashes = tree_proofs.consistency_proof(index, SIZE, known.hash)
        read(known, [Part(0, index)], kept=kept, lost=lost)
        old_root = Part(0, index).root(known.hash)
        assert tree_proofs.proves_consistency(index, old_root, SIZE, ROOTS[SIZE], hashes)


def test_missing_nodes_are_derived_from_lower_ones_and_missing_leaves_are_not() -> None:
    lost = frozenset({Node(LEVELS, 1), Node(2 * LEVELS, 0), Node(LEVELS, 7)})
    known, parts = KnownNodes(), tree_proofs.inclusion_parts(70, SIZE)
    read(known, parts, lost=lost)
    hashes = tree_proofs.inclusion_proof(70, SIZE, known.hash)
    assert tree_proofs.proves_inclusion(LEAVES[70], 70, SIZE, hashes, ROOTS[SIZE])
    known = KnownNodes()
    with pytest.raises(NodeGap, match="leaf 300 is gone"):
        read(known, parts, lost=lost | {Node(0, 300)})
    with pytest.raises(NodeGap, match="leaf 300 is not known"):
        known.hash(8, 1)
