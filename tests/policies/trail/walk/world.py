"""Lines of an export, and walks over them in ranges."""

from collections.abc import Iterable
from itertools import pairwise

from policies.trail.entry import StoredRow
from policies.trail.merkle_tree import Frontier
from policies.trail.walk.joined_walk import JoinedWalk
from policies.trail.walk.range_result import RangeResult
from policies.trail.walk.range_walk import RangeWalk
from tests.policies.world import (
    FULL,
    LOG,
    RETRIEVAL,
    Log,
    decided,
    diverging,
    every_kind,
    full_facts,
)


def line(row: StoredRow) -> bytes:
    if row.openings is None:
        return b'{"entry":%b}' % row.entry
    return b'{"entry":%b,"openings":%b}' % (row.entry, row.openings)


def lines(rows: Iterable[StoredRow]) -> list[bytes]:
    return [line(row) for row in rows]


def mixed_log() -> Log:
    """Every kind, and decisions of sidecars and of the control API, with and without a query and
    what candidates decide."""
    log = every_kind()
    for n in range(20):
        retrieval = FULL if n % 2 else RETRIEVAL._replace(query=None if n % 3 else 'naïve "x"\n')
        record = decided(retrieval, full_facts(), seed=100 + n)
        if n % 5 == 3:
            record = diverging(100 + n, retrieval)
        if n % 4:
            log.shipped(record, f"sidecar-{n % 3}", "i9")
        else:
            log.direct(record)
    return log


def range_of(some: list[bytes], *, with_openings: bool = True) -> RangeResult:
    walk = RangeWalk(with_openings=with_openings)
    walk.feed(b"\n".join(some))
    return walk.result()


def walked(some: list[bytes], cuts: Iterable[int] = (), log: str = LOG) -> JoinedWalk:
    """A walk over the lines, in ranges that end at `cuts`."""
    walk = JoinedWalk(log)
    places = [0, *sorted(cuts), len(some)]
    for begin, end in pairwise(places):
        if not walk.join(range_of(some[begin:end]), lambda _line, _tree: None):
            break
    return walk


def tree_of(rows: Iterable[StoredRow]) -> Frontier:
    tree = Frontier()
    for row in rows:
        assert row.hash is not None
        tree.append(row.hash)
    return tree
