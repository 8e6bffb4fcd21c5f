"""A walk in ranges finds what a walk in one piece finds, wherever the ranges begin."""

import random

import pytest

from policies.trail.entry import StoredRow
from policies.trail.findings import Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.verify import Verifier
from policies.trail.walk.compact_range import CompactRange, extend
from tests.policies.trail.walk.world import lines, mixed_log, tree_of, walked
from tests.policies.world import LOG

WHOLE = mixed_log()
ROWS = WHOLE.rows
LINES = lines(ROWS)
SIZE = len(ROWS)


@pytest.mark.parametrize("size", range(1, 70))
def test_ranges_join_to_the_tree_of_their_leaves(size: int) -> None:
    leaves = [bytes([n]) * 32 for n in range(size)]
    whole = Frontier()
    for leaf in leaves:
        whole.append(leaf)
    for cut in range(size + 1):
        tree = Frontier()
        for begin, end in ((0, cut), (cut, size)):
            part = CompactRange(begin)
            part.extend(leaves[begin:end])
            extend(tree, end, part.hashes)
        assert tree == whole


@pytest.mark.parametrize("cuts", [(), (1,), (7, 8, 9), range(SIZE), (SIZE - 1,)])
def test_a_good_log_holds_in_any_ranges(cuts: tuple[int, ...]) -> None:
    walk = walked(LINES, cuts)
    assert walk.broken is None
    assert walk.tree == tree_of(ROWS)
    assert (walk.last_leaf, walk.last_ts) == (ROWS[-1].hash, WHOLE.ts)
    assert not walk.erasures.count()


def damaged(rng: random.Random) -> list[bytes]:
    """The lines with one byte of one entry changed, or entries moved, doubled or removed."""
    some = list(LINES)
    at = rng.randrange(SIZE)
    kind = rng.randrange(6)
    if kind == 0:
        del some[at]
    elif kind == 1:
        some.insert(at, some[rng.randrange(SIZE)])
    elif kind == 2:
        other = rng.randrange(SIZE)
        some[at], some[other] = some[other], some[at]
    else:
        raw = bytearray(some[at])
        raw[rng.randrange(9, len(ROWS[at].entry) + 9)] ^= 1 << rng.randrange(8)
        some[at] = bytes(raw).replace(b"\n", b"\x0b")
    return some


@pytest.mark.parametrize("seed", range(150))
def test_ranges_find_the_same_as_one_piece(seed: int) -> None:
    rng = random.Random(seed)
    some = damaged(rng)
    whole = walked(some).broken
    cuts = sorted(rng.sample(range(len(some)), 5))
    parts = walked(some, cuts).broken
    assert whole == parts


@pytest.mark.parametrize("seed", range(150))
def test_ranges_find_the_same_as_the_verifier(seed: int) -> None:
    some = damaged(random.Random(seed))
    verifier = Verifier(LOG)
    for seq, line in enumerate(some):
        entry, _, _ = line[9:-1].rpartition(b',"openings":')
        if not verifier.feed(StoredRow(seq, entry)):
            break
    expected = verifier.finish().finding
    found = walked(some).broken
    if expected is None or found is None:
        # A changed byte of the last entry shows against the head, or against a checkpoint.
        # Openings are checked only by the walk.
        assert found == expected or (found and found.reason is Reason.OPENING_MISMATCH)
        return
    if Reason.OPENING_MISMATCH in (found.reason, expected.reason):
        assert found.seq is not None
        assert expected.seq is not None
        assert found.seq <= expected.seq
        return
    assert found.seq == expected.seq
    moved = {Reason.ENTRIES_MISSING, Reason.WRONG_SEQ, Reason.ENTRY_MISPLACED}
    assert found.reason == expected.reason or {found.reason, expected.reason} <= moved
