"""A walk over a log by its hashes: it goes through a true log from any entry on, and stops at
everything that does not follow."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from policies.ground.canonical import encode
from policies.trail.entry import EntryFinding
from policies.trail.findings import Reason
from policies.trail.walk.chain_walk import ChainWalk
from tests.policies.world import Log, every_kind

Rows = list[tuple[int, bytes]]


def rows_of(log: Log) -> Rows:
    return [(row.seq, row.entry) for row in log.rows]


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_true_log_is_walked_from_any_entry(first: int) -> None:
    log = every_kind()
    walk = ChainWalk(log.log, first)
    entries = [walk.take(*row) for row in rows_of(log)[first:]]
    assert [each["seq"] for each in entries] == list(range(first, len(log.rows)))
    assert walk.last_leaf == log.head().last_leaf
    assert walk.next_seq == len(log.rows)


def test_a_walk_continues_from_the_leaf_where_it_ended() -> None:
    log = every_kind()
    before = ChainWalk(log.log, 0)
    for row in rows_of(log)[:3]:
        before.take(*row)
    after = ChainWalk(log.log, 3, before.last_leaf)
    for row in rows_of(log)[3:]:
        after.take(*row)
    assert after.last_leaf == log.head().last_leaf


def take_all(walk: ChainWalk, rows: Rows) -> None:
    for row in rows:
        walk.take(*row)


def _edit(rows: Rows, at: int, **members: object) -> Rows:
    seq, raw = rows[at]
    return [*rows[:at], (seq, encode(orjson.loads(raw) | members)), *rows[at + 1 :]]


BREAKS: list[tuple[Reason, Callable[[Rows], Rows]]] = [
    (Reason.CHAIN_BROKEN, lambda rows: _edit(rows, 1, masked=[["query", "EMAIL"]])),
    (Reason.CHAIN_BROKEN, lambda rows: _edit(rows, 2, prev="A" * 43 + "=")),
    (Reason.CHAIN_BROKEN, lambda rows: _edit(rows, 0, prev="A" * 43 + "=")),
    (Reason.WRONG_SEQ, lambda rows: _edit(rows, 2, seq=7)),
    (Reason.WRONG_LOG, lambda rows: _edit(rows, 2, log="another")),
    (Reason.ENTRIES_MISSING, lambda rows: [*rows[:2], *rows[3:]]),
    (Reason.NOT_AN_ENTRY, lambda rows: [*rows[:2], (2, b"{"), *rows[3:]]),
    (Reason.NOT_AN_ENTRY, lambda rows: [*rows[:2], (2, b"[1]"), *rows[3:]]),
    (Reason.NOT_AN_ENTRY, lambda rows: _edit(rows, 2, kind=None)),
    (Reason.TOO_LARGE, lambda rows: _edit(rows, 2, masked=["x" * 70_000])),
]


@pytest.mark.parametrize(("reason", "broken"), BREAKS)
def test_an_entry_that_does_not_follow_ends_the_walk(
    reason: Reason, broken: Callable[[Rows], Rows]
) -> None:
    log = every_kind()
    walk = ChainWalk(log.log, 0)
    with pytest.raises(EntryFinding) as found:
        take_all(walk, broken(rows_of(log)))
    assert found.value.reason is reason
    assert walk.next_seq <= 2


def test_entries_that_are_missing_at_the_end_are_named() -> None:
    walk = ChainWalk("log", 5)
    with pytest.raises(EntryFinding, match="seq 5 to 8: missing"):
        walk.missing(9)
