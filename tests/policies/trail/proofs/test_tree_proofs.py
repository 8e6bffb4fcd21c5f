"""Inclusion and consistency proofs: every place in every small tree against RFC 9162 word for word,
the published vectors, and whatever else may arrive as a proof."""

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.proofs.nodes import MAX_SIZE, Part, frontier_nodes
from tests.policies.trail.proofs.naive_proofs import naive_consistency, naive_path, reader
from tests.policies.world import naive_root
from tests.support.properties import examples

LARGEST, SMALL = 200, 20
LEAVES = [leaf_hash(b"%d" % n) for n in range(LARGEST)]
ROOTS = [naive_root(LEAVES[:size]) for size in range(LARGEST + 1)]
PUBLISHED = json.loads(
    Path(__file__).parents[3].joinpath("vectors/published/merkle.json").read_text()
)
SOME = bytes(32)


def cases(kind: str) -> list[Any]:
    found = PUBLISHED[kind]["cases"]
    assert len(found) > 90
    assert sum(not each[-1] for each in found) == 6
    return found  # type: ignore[no-any-return]


def raw(proof: list[str] | None) -> list[bytes]:
    return [base64.b64decode(each) for each in proof or []]


@pytest.mark.parametrize("case", cases("inclusion"))
def test_published_inclusion_proofs(case: list[Any]) -> None:
    index, size, root, leaf, proof, wrong = case
    held = tree_proofs.proves_inclusion(
        base64.b64decode(leaf), index, size, raw(proof), base64.b64decode(root)
    )
    assert held is not wrong


def test_published_consistency_proofs() -> None:
    for old, new, old_root, new_root, proof, wrong in cases("consistency"):
        before, after = base64.b64decode(old_root), base64.b64decode(new_root)
        held = tree_proofs.proves_consistency(old, before, new, after, raw(proof))
        # One case has equal sizes and roots that are words, not hashes, and is accepted there. A
        # root of ours is always a hash.
        assert held is (not wrong and len(after) == 32), (old, new, proof)


@pytest.mark.deep(stands_in="test_inclusion_proofs_of_small_trees_are_those_of_the_definition")
def test_every_inclusion_proof_is_that_of_the_definition() -> None:
    check_inclusion(LARGEST)


def test_inclusion_proofs_of_small_trees_are_those_of_the_definition() -> None:
    check_inclusion(SMALL)


def check_inclusion(largest: int) -> None:
    """Check each proof in trees of up to `largest` leaves."""
    for size in range(1, largest + 1):
        node = reader(LEAVES[:size])
        for index in range(size):
            made = tree_proofs.inclusion_proof(index, size, node)
            assert made == naive_path(index, LEAVES[:size])
            assert len(made) == len(tree_proofs.inclusion_parts(index, size))
            assert tree_proofs.proves_inclusion(LEAVES[index], index, size, made, ROOTS[size])
            # It proves neither another leaf nor another place.
            other = (index + 1) % LARGEST
            assert not tree_proofs.proves_inclusion(LEAVES[other], index, size, made, ROOTS[size])
            for at in {index - 1, index + 1, size - 1 - index} - {index}:
                assert not tree_proofs.proves_inclusion(LEAVES[index], at, size, made, ROOTS[size])


@pytest.mark.deep(stands_in="test_consistency_proofs_of_small_trees_are_those_of_the_definition")
def test_every_consistency_proof_is_that_of_the_definition() -> None:
    check_consistency(LARGEST)


def test_consistency_proofs_of_small_trees_are_those_of_the_definition() -> None:
    check_consistency(SMALL)


def check_consistency(largest: int) -> None:
    """Check each proof between trees of up to `largest` leaves."""
    for size in range(1, largest + 1):
        node = reader(LEAVES[:size])
        for old in range(1, size + 1):
            made = tree_proofs.consistency_proof(old, size, node)
            assert made == naive_consistency(old, LEAVES[:size])
            assert tree_proofs.proves_consistency(old, ROOTS[old], size, ROOTS[size], made)
            assert not tree_proofs.proves_consistency(old, ROOTS[old - 1], size, ROOTS[size], made)
            assert not tree_proofs.proves_consistency(old, ROOTS[old], size, ROOTS[size - 1], made)
            if old < size:
                assert not tree_proofs.proves_consistency(old, ROOTS[size], size, ROOTS[size], made)


def altered(proof: list[bytes]) -> list[list[bytes]]:
    """Each hash with a changed bit, left out, repeated, and shortened; one more at either end."""
    found = [[*proof, SOME], [SOME, *proof], [*proof, b""]]
    for at, each in enumerate(proof):
        before, after = proof[:at], proof[at + 1 :]
        for bit in (0, 100, 255):
            flipped = int.from_bytes(each, "big") ^ 1 << bit
            found.append([*before, flipped.to_bytes(32, "big"), *after])
        found += [[*before, *after], [*before, each, each, *after], [*before, each[:-1], *after]]
    if len(proof) > 1:
        found.append(proof[::-1])
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 33, 64, 70])
def test_an_altered_proof_proves_nothing(size: int) -> None:
    node = reader(LEAVES[:size])
    for at in {0, 1, size // 2, size - 1} & set(range(size)):
        for proof in altered(tree_proofs.inclusion_proof(at, size, node)):
            assert not tree_proofs.proves_inclusion(LEAVES[at], at, size, proof, ROOTS[size])
        old = at + 1
        for proof in altered(tree_proofs.consistency_proof(old, size, node)):
            assert not tree_proofs.proves_consistency(old, ROOTS[old], size, ROOTS[size], proof)


NUMBERS = st.one_of(
    st.integers(-3, 80),
    st.sampled_from([2**31, 2**32, 2**62, 2**63 - 2, MAX_SIZE, MAX_SIZE + 1, 2**64, -(2**63)]),
    st.integers(),
)
HASHES = st.lists(st.binary(max_size=40) | st.binary(min_size=32, max_size=32), max_size=70)


@pytest.mark.deep(stands_in="test_no_odd_size_makes_the_verification_fail_with_an_error")
@given(NUMBERS, NUMBERS, HASHES, st.binary(max_size=33), st.binary(min_size=32, max_size=32))
@examples(1000)
def test_no_size_and_no_hashes_make_the_verification_fail_with_an_error(
    one: int, other: int, hashes: list[bytes], first: bytes, second: bytes
) -> None:
    check_refused(one, other, hashes, first, second)


def test_no_odd_size_makes_the_verification_fail_with_an_error() -> None:
    odd = (-(2**63), -3, -1, 0, 1, 2, 3, 4, 64, 2**32, MAX_SIZE, MAX_SIZE + 1, 2**64)
    for one, other in itertools.product(odd, odd):
        for hashes in ([], [SOME], [SOME] * 64, [SOME[1:]], [b"", SOME]):
            for first in (LEAVES[0], LEAVES[1], LEAVES[0][1:], b""):
                check_refused(one, other, hashes, first, LEAVES[1])


def check_refused(one: int, other: int, hashes: list[bytes], first: bytes, second: bytes) -> None:
    """Neither proof holds, and neither verification raises or goes on forever."""
    assert not tree_proofs.proves_inclusion(first, one, other, hashes, second) or (one, other) == (
        0,
        1,
    )
    assert not tree_proofs.proves_consistency(one, first, other, second, hashes) or one == other


@given(NUMBERS, NUMBERS)
@examples(500)
def test_a_proof_that_does_not_exist_is_refused_before_it_is_made(one: int, other: int) -> None:
    if not 0 <= one < other <= MAX_SIZE:
        with pytest.raises(ValueError, match="has no leaf"):
            tree_proofs.inclusion_parts(one, other)
    if not 0 < one <= other <= MAX_SIZE:
        with pytest.raises(ValueError, match="no consistency proof"):
            tree_proofs.consistency_parts(one, other)


@given(st.integers(1, MAX_SIZE), st.data())
def test_a_proof_of_any_size_needs_few_nodes(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    parts = tree_proofs.inclusion_parts(index, size)
    assert len(parts) <= size.bit_length() <= 63
    # Together with the leaf, the parts are the tree, each leaf once.
    covered = sorted([*parts, Part(index, index + 1)])
    assert [part.end for part in covered[:-1]] == [part.first for part in covered[1:]]
    assert (covered[0].first, covered[-1].end) == (0, size)
    assert sum(len(list(part.nodes())) for part in parts) <= 126
    ends = tree_proofs.consistency_parts(index + 1, size)
    assert len(ends) <= 64
    assert sum(len(list(part.nodes())) for part in ends) <= 190


@given(st.integers(0, LARGEST))
def test_the_nodes_of_a_frontier_are_those_of_its_size(size: int) -> None:
    frontier = Frontier()
    for leaf in LEAVES[:size]:
        frontier.append(leaf)
    node = reader(LEAVES[:size])
    assert [node(*each) for each in frontier_nodes(size)] == frontier.hashes
