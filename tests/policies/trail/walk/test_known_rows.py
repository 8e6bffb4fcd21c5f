"""Rows that are checked together give what the full check of each gives: the same finding at the
same entry, and the same report, tree, sources, erasures and silences."""

import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode
from policies.trail.entry import StoredRow, check_entry, index_of
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import MAX_ENTRY
from policies.trail.verify import Verifier
from policies.trail.walk import range_walk
from policies.trail.walk.known_lines import LineMatcher
from tests.policies.trail.walk.test_known_lines import mutated
from tests.policies.trail.walk.world import mixed_log, tree_of
from tests.policies.world import FULL, LOG, Log, decided, full_facts, masked_log, statement_log

Rows = list[StoredRow]
ROWS = mixed_log().rows
IS_DECISION = b'"kind":"decision"'
LAST = len(ROWS) - 1


def walked(rows: Rows, *, one_by_one: bool = False, expected: int | None = None) -> list[Any]:
    """All that a verification of rows gives."""
    verifier = Verifier(LOG)
    if expected is not None:
        verifier.expect(expected, tree_of(ROWS[:expected]).root())
    if one_by_one:
        all(verifier.feed(row) for row in rows)
    else:
        verifier.feed_all(rows)
    tree, leaf, found = verifier.reached()
    report, missing = verifier.finish(), list(verifier.erasures.pending(100))
    state = [tree.size, tree.hashes, leaf, found, report, missing, verifier.silences.longest()]
    # Where a walk broke off, its sources are those of some entries more or less.
    return [*state, dict(verifier.source_ends) if found is None else {}]


def agree(rows: Rows, monkeypatch: pytest.MonkeyPatch, expected: int | None = None) -> list[Any]:
    """What a verification of the rows gives, the same together, one by one and by the full check
    alone."""
    found = walked(rows, expected=expected)
    assert found == walked(rows, one_by_one=True, expected=expected)
    with monkeypatch.context() as patched:
        patched.setattr(LineMatcher, "rows", lambda _form, _block: None)
        assert found == walked(rows, expected=expected)
    return found


def test_rows_of_decisions_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    def counted(raw: bytes, entry: Any) -> bool:
        checked.append(raw)
        return check_entry(raw, entry)

    monkeypatch.setattr(range_walk, "check_entry", counted)
    assert Verifier(LOG).feed_all(ROWS)
    # Those between rows of another kind are too few to be worth it.
    together = [row.entry for row in ROWS[-20:]]
    assert all(IS_DECISION in raw for raw in together)
    assert not [raw for raw in checked if raw in together]


@pytest.mark.parametrize(
    "rows", [ROWS, masked_log().rows, statement_log().rows], ids=["mixed", "masked", "statements"]
)
def test_whole_logs_are_valid_by_either_path(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agree(rows, monkeypatch)[3] is None
    bare = [row._replace(hash=None, columns=None) for row in rows]
    assert agree(bare, monkeypatch)[3] is None


@pytest.mark.parametrize("size", [1, 2, LAST - 7, LAST])
def test_a_checkpoint_within_the_rows_is_taken_at_its_place(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agree(ROWS, monkeypatch, size)[3] is None
    at = max(row.seq for row in ROWS if IS_DECISION in row.entry and b'"src":' not in row.entry)
    found = agree(rechained(ROWS, at, FORGED["another verdict"]), monkeypatch, size)[3]
    assert (found is not None) == (size > at)


# ------------------------------------------------------------------------- what a database holds


BESIDE: dict[str, Callable[[StoredRow, random.Random], dict[str, Any]]] = {
    "the number": lambda row, rng: {"seq": row.seq + rng.choice((-1, 1, 5))},
    "the hash": lambda row, rng: {"hash": rng.choice((bytes(32), b"", "text"))},
    "no hash": lambda row, rng: {"hash": None},
    "no columns": lambda row, rng: {"columns": None},
    "a column": lambda row, rng: {"columns": _other(row, rng)},
    "no openings": lambda row, rng: {"openings": rng.choice((b"{}", None, b"", "{}"))},
    "another's openings": lambda row, rng: {"openings": rng.choice(ROWS).openings},
    "a bit of the openings": lambda row, rng: {"openings": _flipped(row.openings or b"{}", rng)},
    "no entry": lambda row, rng: {"entry": rng.choice((None, b"", "text", 7))},
    "the entry as text": lambda row, rng: {"entry": row.entry.decode()},
    "another's entry": lambda row, rng: {"entry": rng.choice(ROWS).entry},
    "the entry": lambda row, rng: {"entry": mutated(row.entry, rng)},
    "the entry with its hash": lambda row, rng: _hashed(mutated(row.entry, rng)),
    "a line feed": lambda row, rng: {"entry": row.entry.replace(b",", b",\n", 1)},
    "two lines in the openings": lambda row, rng: {
        "openings": b'%b}\n{"entry":%b' % (row.openings or b"", _joined(row))
    },
    "the border moved into the entry": lambda row, rng: {"entry": _joined(row)},
    "the border moved into the openings": lambda row, rng: _cut(row, rng),  # noqa: PLW0108
    "too much": lambda row, rng: {"entry": b"%b%b" % (row.entry, b" " * MAX_ENTRY)},
}


def _other(row: StoredRow, rng: random.Random) -> Any:
    assert row.columns is not None
    name = rng.choice(row.columns._fields)
    value: Any = rng.choice((None, "other", "ALLOW", 0, b"event-1", ""))
    return row.columns._replace(**{name: value})


def _hashed(raw: bytes) -> dict[str, Any]:
    return {"entry": raw, "hash": leaf_hash(raw), "columns": None}


def _flipped(raw: bytes, rng: random.Random) -> bytes:
    changed = bytearray(raw)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _joined(row: StoredRow) -> bytes:
    return b'%b,"openings":%b' % (row.entry, row.openings or b"")


def _cut(row: StoredRow, rng: random.Random) -> dict[str, Any]:
    """The same line, divided at another place."""
    line = _joined(row)
    at = rng.randrange(len(line))
    return {"entry": line[:at], "openings": line[at:]}


@pytest.mark.parametrize("name", BESIDE)
def test_a_changed_row_is_judged_alike_by_either_path(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(name)
    for _ in range(8):
        at = rng.randrange(1, len(ROWS))
        rows = [*ROWS[:at], ROWS[at]._replace(**BESIDE[name](ROWS[at], rng)), *ROWS[at + 1 :]]
        agree(rows, monkeypatch)


def test_reordered_repeated_and_missing_rows_are_judged_alike_by_either_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(7)
    for _ in range(8):
        rows, at, to = list(ROWS), rng.randrange(len(ROWS)), rng.randrange(len(ROWS))
        rows.insert(to, rows.pop(at) if rng.random() < 0.5 else rows[at])
        if rng.random() < 0.3:
            del rows[rng.randrange(len(rows))]
        agree(rows, monkeypatch)
        agree([row._replace(seq=seq) for seq, row in enumerate(rows)], monkeypatch)


# --------------------------------------------------------------------- what who has the key writes


def rechained(rows: Rows, at: int, change: Callable[[dict[str, Any]], object]) -> Rows:
    """The rows with a changed entry `at`, and every later `prev`, hash and column made to fit."""
    made, prev = list(rows[:at]), b""
    for row in rows[at:]:
        entry = orjson.loads(row.entry)
        entry["prev"] = b64(prev) if prev else entry["prev"]
        if row is rows[at]:
            change(entry)
        raw = encode(entry)
        try:
            columns = index_of(entry)
        except (ValueError, TypeError, LookupError):
            columns = row.columns  # type: ignore[assignment]
        prev = leaf_hash(raw)
        made.append(row._replace(entry=raw, hash=prev, columns=columns))
    return made


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "another number": lambda entry: entry.update(seq=entry["seq"] + 1),
    "another log": lambda entry: entry.update(log="other"),
    "another version": lambda entry: entry.update(v=2),
    "an earlier time": lambda entry: entry.update(ts="2025-01-01T00:00:00.000000Z"),
    "a later time": lambda entry: entry.update(ts="2027-01-01T00:00:00.000000Z"),
    "no time": lambda entry: entry.update(ts="2026-02-31T00:00:00.000000Z"),
    "another verdict": lambda entry: entry["pub"]["response"].update(decision="ALLOW"),
    "no such verdict": lambda entry: entry["pub"]["response"].update(decision="MAYBE"),
    "text that looks like a member": lambda entry: entry["pub"]["response"].update(
        reason=',"request":{"agent_id":"other"},"response":{'
    ),
    "facts that look like a member": lambda entry: entry["pub"]["facts"].update(
        request={"agent_id": "other"}, response={"decision": "ALLOW"}
    ),
    "a name that looks like a member": lambda entry: entry["pub"]["request"].update(
        source_id=',"request":{"'
    ),
    "another agent": lambda entry: entry["pub"]["request"].update(agent_id="ä"),
    "an id with an escape": lambda entry: entry.update(eid='a"b'),
    "the number of another record": lambda entry: entry.get("src", {}).update(n=7),
    "another source": lambda entry: entry.get("src", {}).update(id="sidecar-9"),
    "a new source": lambda entry: entry.get("src", {}).update(id="sidecar-9", n=0, prev=""),
    "another record before": lambda entry: entry.get("src", {}).update(prev="A" * 43 + "="),
    "no record before": lambda entry: entry.get("src", {}).update(prev=""),
    "another time of its source": lambda entry: entry.get("src", {}).update(
        t="2026-01-01T05:00:00.000000Z"
    ),
    "no time of its source": lambda entry: entry.get("src", {}).update(t="yesterday"),
    "a commitment": lambda entry: entry["cm"].update(user_id="A" * 43 + "="),
    "other facts": lambda entry: entry["pub"].update(facts={"Revision": -1}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_rewritten_log_is_judged_alike_by_either_path(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = [at for at, row in enumerate(ROWS) if IS_DECISION in row.entry and at]
    for at in random.Random(name).sample(decisions, 8):
        agree(rechained(ROWS, at, FORGED[name]), monkeypatch)


def test_a_source_s_record_in_a_later_range_continues_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    for number in range(150):
        log.shipped(decided(FULL, full_facts(), seed=number), f"sidecar-{number % 3}")
    assert agree(log.rows, monkeypatch)[3] is None
    for at in (63, 64, 65, 66, 130):
        for name in ("the number of another record", "another record before", "a new source"):
            agree(rechained(log.rows, at, FORGED[name]), monkeypatch)
