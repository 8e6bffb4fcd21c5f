"""Every attack on a small log is found, at the right entry."""

import base64
import json
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode, rfc3339
from policies.trail.entry import Index, StoredRow
from policies.trail.findings import Reason
from policies.trail.verify import LogHead, VerificationReport, Verifier
from tests.policies.trail.small_log import (
    BARE,
    EACH,
    HEAD,
    ROWS,
    SIZE,
    WHOLE,
    broken,
    replaced,
    walk,
)
from tests.policies.world import LOG, START, Log, decided


def test_the_unchanged_log_is_valid() -> None:
    for rows in (ROWS, BARE):
        report = walk(rows)
        assert report == VerificationReport(
            valid=True,
            total=SIZE,
            events=4,
            first_seq=0,
            last_seq=SIZE - 1,
            head_hash=HEAD.last_leaf.hex(),
            root_hash=WHOLE.tree.root().hex(),
            broken_at=None,
            reason=None,
            finding=None,
        )


def test_an_empty_log_holds() -> None:
    report = walk([], LogHead(0, b"", "", b""))
    assert (report.valid, report.total, report.first_seq, report.head_hash) == (True, 0, None, None)
    assert not walk([]).valid


def test_feeding_one_by_one_is_feeding_all() -> None:
    verifier = Verifier(LOG)
    assert all(verifier.feed(row) for row in ROWS)
    assert verifier.finish(HEAD) == walk(ROWS)


# ------------------------------------------------------------------------------- bytes and rows


@EACH
@pytest.mark.parametrize("mask", [0x01, 0x20, 0xFF])
def test_every_flipped_byte_is_found_where_it_is(at: int, mask: int) -> None:
    row = ROWS[at]
    for place in range(len(row.entry)):
        raw = bytearray(row.entry)
        raw[place] ^= mask
        changed = row._replace(entry=bytes(raw))
        verifier = Verifier(LOG)
        assert verifier.feed_all(ROWS[:at])
        assert not verifier.feed(changed)
        assert (verifier.finish(HEAD).reason or "").startswith(f"seq {at}: ")


@EACH
def test_every_flipped_byte_of_bare_entries_is_found_at_the_next(at: int) -> None:
    """Without a hash beside the bytes, the next entry's `prev` reveals the change, or the head."""
    for place in range(0, len(ROWS[at].entry), 3):
        raw = bytearray(ROWS[at].entry)
        raw[place] ^= 1
        reason = broken(replaced(at, StoredRow(at, bytes(raw)), BARE))
        assert reason.startswith((f"seq {at}: ", f"seq {at + 1}: ", "the head"))


@EACH
def test_every_dropped_or_added_byte_is_found(at: int) -> None:
    raw = ROWS[at].entry
    for place in range(0, len(raw), 7):
        for changed in (raw[:place] + raw[place + 1 :], raw[:place] + b" " + raw[place:]):
            broken(replaced(at, ROWS[at]._replace(entry=changed)), at)


@EACH
@pytest.mark.parametrize("rows", [ROWS, BARE], ids=["rows", "bare"])
def test_a_deleted_entry_is_found(at: int, rows: list[StoredRow]) -> None:
    without = [*rows[:at], *rows[at + 1 :]]
    broken(without, at if at < SIZE - 1 else None)
    renumbered = [row._replace(seq=seq) for seq, row in enumerate(without)]
    broken(renumbered, at if at < SIZE - 1 else None)


@EACH
def test_a_deleted_tail_is_found_by_the_head(at: int) -> None:
    assert broken(ROWS[:at]) == f"the head counts {SIZE} entries; the log has {at}"
    assert walk(ROWS[:at], None).valid


@EACH
def test_a_deleted_beginning_is_found(at: int) -> None:
    if at:
        assert broken(ROWS[at:], 0) == f"seq {at}: {at} entries before this one are missing"
        # The rest is presented as a whole log, renumbered.
        broken([row._replace(seq=seq) for seq, row in enumerate(ROWS[at:])], 0)


@EACH
def test_an_inserted_entry_is_found(at: int) -> None:
    extra = Log()
    extra.direct(decided(seed=99))
    forged = extra.rows[0]
    # A first entry has no predecessor; the next one reveals that it doesn't belong there.
    broken([*ROWS[:at], forged._replace(seq=at), *ROWS[at:]], at or 1)
    broken([*ROWS, forged._replace(seq=SIZE)], SIZE)


@EACH
def test_a_repeated_entry_is_found(at: int) -> None:
    broken([*ROWS[: at + 1], *ROWS[at:]], at + 1)
    again = [*ROWS[: at + 1], ROWS[at]._replace(seq=at + 1), *ROWS[at + 1 :]]
    broken(again, at + 1)


@pytest.mark.parametrize("one", range(SIZE))
def test_two_swapped_entries_are_found_at_the_first(one: int) -> None:
    for other in range(one + 1, SIZE):
        rows = list(ROWS)
        rows[one], rows[other] = rows[other], rows[one]
        broken(rows, one)
        broken([row._replace(seq=seq) for seq, row in enumerate(rows)], one)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", b"null", b"1", b'"x"', b"{", b"\xff", b'{"pub":{}}', b'{"eid":1}',
     b"[" * 900 + b"]" * 900],
)  # fmt: skip
def test_bytes_that_are_not_an_entry_are_a_finding_not_a_crash(raw: bytes) -> None:
    for row in (StoredRow(1, raw), ROWS[1]._replace(entry=raw)):
        broken(replaced(1, row), 1)


# ------------------------------------------------------------------------------- columns


@EACH
@pytest.mark.parametrize("column", Index._fields)
def test_every_changed_column_is_found(at: int, column: str) -> None:
    row = ROWS[at]
    assert row.columns is not None
    was = getattr(row.columns, column)
    swapped = was.swapcase() if isinstance(was, str) else was
    values: list[Any] = [None, "", "x", 0, 1, START, swapped]
    for value in values:
        if value != was:
            changed = row._replace(columns=row.columns._replace(**{column: value}))
            assert f"the column `{column}`" in broken(replaced(at, changed), at)


@EACH
def test_a_changed_hash_or_number_column_is_found(at: int) -> None:
    row = ROWS[at]
    assert row.hash is not None
    for value in (b"", bytes(32), row.hash[:31], row.hash + b"\0", ROWS[at - 1].hash):
        reason = broken(replaced(at, row._replace(hash=value)), at)
        assert "the column `hash`" in reason
    for seq in (at - 1, at + 1, -1, 10**6):
        report = walk(replaced(at, row._replace(seq=seq)))
        assert not report.valid
        assert report.total == at


# ------------------------------------------------------------------------------- openings

OPENED = [row.seq for row in ROWS if row.openings != b"{}"]


@pytest.mark.parametrize("at", OPENED)
def test_an_opening_that_is_missing_swapped_or_wrong_is_found(at: int) -> None:
    row = ROWS[at]
    openings: dict[str, Any] = orjson.loads(row.openings or b"")
    for path, (salt, value) in openings.items():
        others = {key: each for key, each in openings.items() if key != path}
        for wrong in (
            others | {path: [salt, f"{value}x"]}, others | {path: [b64(bytes(32)), value]},
            others | {path: [value, salt]}, others | {path: None}, others | {path: [salt]},
            openings | {"more": [salt, value]},
        ):  # fmt: skip
            assert "opening" in broken(replaced(at, row._replace(openings=encode(wrong))), at)
        missing(at, encode(others))
    for raw in (b"", b"[]", b"null", b"x", b"1"):
        broken(replaced(at, row._replace(openings=raw)), at)
    missing(at, b"{}")


def missing(at: int, openings: bytes) -> None:
    """Such openings lack one, which is certain only at the end of the log."""
    report = walk(replaced(at, ROWS[at]._replace(openings=openings)))
    assert (report.valid, report.broken_at, report.total) == (False, str(at), len(ROWS))
    assert report.finding is not None
    assert report.finding.reason == Reason.OPENING_MISSING


@EACH
def test_an_opening_without_a_commitment_is_found(at: int) -> None:
    extra = {"more": [b64(bytes(32)), "x"]}
    openings = orjson.loads(ROWS[at].openings or b"")
    changed = ROWS[at]._replace(openings=encode(openings | extra))
    assert "`more` does not match" in broken(replaced(at, changed), at)


# ------------------------------------------------------------------------------- the head


def test_every_part_of_the_head_is_compared_with_the_entries() -> None:
    assert HEAD.frontier[:32] != HEAD.last_leaf
    changes: dict[str, list[Any]] = {
        "size": [0, SIZE - 1, SIZE + 1],
        "last_leaf": [b"", bytes(32), ROWS[-2].hash],
        "last_ts": ["", rfc3339(START), rfc3339(START + 10**9)],
        "frontier": [b"", bytes(64), HEAD.frontier[32:], HEAD.frontier + bytes(32)],
    }
    for name, values in changes.items():
        for value in values:
            assert broken(ROWS, head=HEAD._replace(**{name: value})).startswith("the head")


# ------------------------------------------------------------------------------- the report


def test_nothing_is_found_after_the_first_finding() -> None:
    verifier = Verifier(LOG)
    assert not verifier.feed(ROWS[3])
    assert not verifier.feed(ROWS[0])
    assert not verifier.feed_all(ROWS)
    report = verifier.finish(HEAD)
    assert (report.valid, report.total) == (False, 0)
    assert (report.reason or "").startswith("seq 3: ")


def test_a_report_names_the_event_that_fails() -> None:
    row = ROWS[5]
    report = walk(replaced(5, row._replace(hash=bytes(32))))
    assert (report.broken_at, report.total, report.last_seq) == ("event-5", 5, 4)
    assert walk(replaced(5, row._replace(entry=b"{}"))).broken_at == "5"


@pytest.mark.parametrize("after", [0, 3])
def test_an_error_of_the_rows_is_not_a_finding(after: int) -> None:
    """A database error in the middle of a walk is not a finding about the log."""

    def rows() -> Any:
        yield from ROWS[:after]
        raise ValueError("the connection is gone")

    verifier = Verifier(LOG)
    with pytest.raises(ValueError, match="the connection is gone"):
        verifier.feed_all(rows())
    assert verifier.feed_all(ROWS[after:])
    assert verifier.finish(HEAD).valid


def test_another_tenant_s_log_is_refused() -> None:
    assert "another log" in (walk(ROWS, HEAD, "other").reason or "")


def test_entries_are_plain_json_that_anyone_can_read() -> None:
    for row in ROWS:
        entry = json.loads(row.entry)
        assert base64.b64decode(entry["prev"]) == (ROWS[row.seq - 1].hash if row.seq else b"")
