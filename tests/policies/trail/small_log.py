"""A small log, walks over it, and logs that were forged whole."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode
from policies.trail.entry import StoredRow
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.verify import LogHead, VerificationReport, Verifier
from tests.policies.world import LOG, every_kind

WHOLE = every_kind()
ROWS = WHOLE.rows
HEAD = WHOLE.head()
SIZE = len(ROWS)
BARE = [StoredRow(row.seq, row.entry) for row in ROWS]
EACH = pytest.mark.parametrize("at", range(SIZE))


def walk(rows: list[StoredRow], head: LogHead | None = HEAD, log: str = LOG) -> VerificationReport:
    verifier = Verifier(log)
    verifier.feed_all(rows)
    return verifier.finish(head)


def broken(rows: list[StoredRow], at: int | None = None, head: LogHead | None = HEAD) -> str:
    """The reason, for a log that must be found broken: after `at` valid entries, if given."""
    report = walk(rows, head)
    assert not report.valid
    assert report.broken_at is not None
    assert report.reason is not None
    if at is not None:
        assert report.total == at, report.reason
    return report.reason


def replaced(at: int, row: StoredRow, rows: list[StoredRow] = ROWS) -> list[StoredRow]:
    return [*rows[:at], row, *rows[at + 1 :]]


def forged(change: Callable[[int, dict[str, Any]], object], seal: Any = encode) -> list[StoredRow]:
    """The log with changed entries, with every later `prev` and `src.prev` recomputed to fit."""
    rows, prev = [], ""
    for row in ROWS:
        entry = orjson.loads(row.entry)
        entry["prev"] = prev
        change(row.seq, entry)
        raw: bytes = seal(entry)
        leaf = leaf_hash(raw)
        rows.append(StoredRow(row.seq, raw, leaf))
        prev = b64(leaf)
    return rows


def head_of(rows: list[StoredRow]) -> LogHead:
    tree = Frontier()
    for row in rows:
        tree.append(leaf_hash(row.entry))
    last = orjson.loads(rows[-1].entry)["ts"]
    return LogHead(len(rows), leaf_hash(rows[-1].entry), last, tree.to_bytes())
