"""Every attack on a small log is found, at the right entry."""

import base64
import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode, rfc3339
from policies.trail.entry import Index, index_of
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.record import MAX_ENTRY, make_record
from policies.trail.stored_entry import StoredRow
from policies.trail.verify import LogHead, VerificationReport, Verifier
from tests.policies.world import LOG, START, Log, decided, every_kind

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
    """The reason, of a log that must be found broken: after `at` good entries, where that is
    given."""
    report = walk(rows, head)
    assert not report.valid
    assert report.broken_at is not None
    assert report.reason is not None
    if at is not None:
        assert report.total == at, report.reason
    return report.reason


def replaced(at: int, row: StoredRow, rows: list[StoredRow] = ROWS) -> list[StoredRow]:
    return [*rows[:at], row, *rows[at + 1 :]]


def test_the_log_as_it_is_holds() -> None:
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
            others, others | {path: [salt, f"{value}x"]}, others | {path: [b64(bytes(32)), value]},
            others | {path: [value, salt]}, others | {path: None}, others | {path: [salt]},
            openings | {"more": [salt, value]},
        ):  # fmt: skip
            assert "opening" in broken(replaced(at, row._replace(openings=encode(wrong))), at)
    for raw in (b"{}", b"", b"[]", b"null", b"x", b"1"):
        broken(replaced(at, row._replace(openings=raw)), at)


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


# ------------------------------------------------- logs that were forged whole, hash for hash


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


def at_one(change: Callable[[dict[str, Any]], object]) -> Callable[[int, dict[str, Any]], object]:
    return lambda seq, entry: change(entry) if seq == 1 else None


def test_the_forger_would_get_through_with_a_log_that_is_in_order() -> None:
    rows = forged(at_one(lambda entry: entry["pub"].update(action_type="nothing")))
    assert walk(rows, head_of(rows)).valid


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a float": lambda e: e["pub"].update(a=0.5),
    "a whole float": lambda e: e["pub"].update(a=1.0),
    "a float in a list": lambda e: e["masked"].append([1.5]),
    "a float deep within": lambda e: e["pub"].update(a={"b": [{"c": [[0.1]]}]}),
    "an integer beyond 53 bits": lambda e: e["pub"].update(a=2**53),
    "a negative one": lambda e: e["pub"].update(a=[{"b": -(2**53)}]),
    "a capital in a key": lambda e: e["pub"].update(A=1),
    "an empty key": lambda e: e["pub"].update({"": 1}),
    "a space in a key": lambda e: e["pub"].update({"a b": 1}),
    "a newline after a key": lambda e: e["pub"].update({"a\n": 1}),
    "another script in a key": lambda e: e["pub"].update({"é": 1}),
    "an odd key deep within": lambda e: e["pub"].update(a=[[{"b": {"C": 1}}]]),
    "an odd key in a commitment's path": lambda e: e["cm"].update({"Q": "x"}),
    "a member too many": lambda e: e.update(extra=1),
    "a member too few": lambda e: e.pop("masked"),
    "another log": lambda e: e.update(log="other"),
    "another version": lambda e: e.update(v=2),
    "a version that is true": lambda e: e.update(v=True),
    "a number that is true": lambda e: e.update(seq=True),
    "a number that is another": lambda e: e.update(seq=7),
    "a number that is a text": lambda e: e.update(seq="1"),
    "a time before the last": lambda e: e.update(ts=rfc3339(START - 1)),
    "a time that is a number": lambda e: e.update(ts=0),
    "too many bytes": lambda e: e["pub"].update(a="x" * MAX_ENTRY),
    "too deep": lambda e: e["pub"].update(a=orjson.loads(b"[" * 200 + b"1.5" + b"]" * 200)),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_entry_outside_the_format_is_found(
    change: Callable[[dict[str, Any]], object],
) -> None:
    def seal(entry: dict[str, Any]) -> bytes:
        return orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)

    rows = forged(at_one(change), seal)
    broken(rows, 1, head_of(rows))


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "a key twice": lambda raw: raw.replace(b'"v":1}', b'"v":1,"v":1}'),
    "a key twice, the first another": lambda raw: raw.replace(b'"v":1}', b'"v":2,"v":1}'),
    "a key twice, deep within": lambda raw: raw.replace(b'"outcome":', b'"outcome":"","outcome":'),
    "white space": lambda raw: raw.replace(b",", b", "),
    "white space around": lambda raw: raw + b"\n",
    "an escape too many": lambda raw: raw.replace(b"lineage", b"l\\u0069neage"),
    "an escaped slash": lambda raw: raw.replace(b"email_sent", b"email\\/sent"),
    "keys in another order": lambda raw: b'{"v":1,' + raw[1:].replace(b',"v":1}', b"}"),
    "an exponent": lambda raw: raw.replace(b'"v":1}', b'"v":1e0}'),
    "a negative zero": lambda raw: raw.replace(b'"pub":{', b'"pub":{"a":-0,'),
    "a byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "a second value": lambda raw: raw + raw,
}


@pytest.mark.parametrize("spoil", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_a_forged_entry_in_another_encoding_is_found(spoil: Callable[[bytes], bytes]) -> None:
    def seal(entry: dict[str, Any]) -> bytes:
        raw = encode(entry)
        if entry["seq"] == 1:
            assert spoil(raw) != raw
        return spoil(raw) if entry["seq"] == 1 else raw

    rows = forged(lambda seq, entry: None, seal)
    broken(rows, 1, head_of(rows))


# ------------------------------------------------------------------------------- sources


def shipped(order: list[int]) -> list[StoredRow]:
    """A log of one sidecar's records, of which the control API accepts those in `order`."""
    made = Log()
    for n in range(6):
        made.shipped(decided(seed=n))
    log, rows = Log(), []
    for seq, n in enumerate(order):
        entry = orjson.loads(made.rows[n].entry)
        entry |= {"seq": seq, "prev": log.prev, "ts": rfc3339(START + seq)}
        raw = encode(entry)
        leaf = leaf_hash(raw)
        log.prev = b64(leaf)
        rows.append(StoredRow(seq, raw, leaf, index_of(entry)))
    return rows


def test_a_sidecars_records_in_their_order_hold() -> None:
    rows = shipped(list(range(6)))
    assert walk(rows, head_of(rows)).valid


@pytest.mark.parametrize(
    ("order", "at"),
    [([1, 2, 3], 0), ([0, 2, 3], 1), ([0, 1, 1, 2], 2), ([0, 1, 3, 2], 2), ([0, 1, 0], 2),
     ([0, 1, 2, 3, 5], 4), ([0, 0], 1)],
)  # fmt: skip
def test_a_record_dropped_repeated_or_reordered_after_its_sidecar_is_found(
    order: list[int], at: int
) -> None:
    rows = shipped(order)
    assert "source `sidecar-1` counts" in broken(rows, at, head_of(rows))


@pytest.mark.parametrize("at", range(5))
def test_a_record_replaced_after_its_sidecar_is_found_at_the_next_one(at: int) -> None:
    """The control API can recompute its own chain, but not the sidecar's."""
    rows = shipped(list(range(6)))
    prev = ""
    for seq, row in enumerate(rows):
        entry = orjson.loads(row.entry)
        entry["prev"] = prev
        if seq == at:
            entry["pub"]["response"]["decision"] = "DENY"
        raw = encode(entry)
        rows[seq] = StoredRow(seq, raw)
        prev = b64(leaf_hash(raw))
    reason = broken(rows, at + 1, head_of(rows))
    assert f"`src.prev` is not the hash of record {at} of source `sidecar-1`" in reason


def test_each_instance_counts_for_itself() -> None:
    log = Log()
    for n, (source, instance) in enumerate([("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")] * 3):
        log.shipped(decided(seed=n), source, instance)
    assert walk(log.rows, log.head()).valid


# ------------------------------------------------------------------------------- stretches


def long_log() -> Log:
    log = Log()
    for n in range(23):
        if n % 3:
            log.shipped(decided(seed=n), f"sidecar-{n % 2}")
        else:
            log.direct(make_record("heartbeat", f"h-{n}", b"{}"))
    return log


LONG = long_log()


def joined(rows: list[StoredRow], stretch: int, head: LogHead | None = None) -> VerificationReport:
    """Walked in stretches of a power of two, each by its own verifier, and joined."""
    walks = []
    for start in range(0, len(rows) or 1, stretch):
        verifier = Verifier(LOG, start)
        verifier.feed_all(rows[start : start + stretch])
        walks.append(verifier)
    for later in walks[1:]:
        walks[0].join(later)
    return walks[0].finish(head)


STRETCH = pytest.mark.parametrize("stretch", [1, 2, 4, 8, 16, 32])


@STRETCH
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 9, 16, 17, 23])
def test_a_log_walked_in_stretches_is_the_log_walked_whole(stretch: int, size: int) -> None:
    assert joined(LONG.rows[:size], stretch) == walk(LONG.rows[:size], None)
    assert joined(LONG.rows, stretch, LONG.head()) == walk(LONG.rows, LONG.head())


@STRETCH
@pytest.mark.parametrize("at", range(23))
def test_an_attack_is_found_in_whatever_stretch(stretch: int, at: int) -> None:
    row = LONG.rows[at]
    changed = row._replace(entry=row.entry.replace(b'"v":1', b'"v":2'))
    whole, parts = replaced(at, changed, LONG.rows), replaced(at, changed, LONG.rows)
    assert joined(parts, stretch).reason == walk(whole, None).reason
    assert joined(parts, stretch).broken_at == walk(whole, None).broken_at


@STRETCH
@pytest.mark.parametrize("at", range(22))
def test_a_forgery_up_to_a_seam_is_found_at_the_seam(stretch: int, at: int) -> None:
    """An entry and all before it are replaced by another log's, whose end doesn't fit."""
    other = Log()
    for n in range(23):
        other.direct(make_record("heartbeat", f"other-{n}", b"{}"))
    rows = [*other.rows[: at + 1], *LONG.rows[at + 1 :]]
    report = joined(rows, stretch)
    assert not report.valid
    assert (report.reason or "").startswith(f"seq {at + 1}: `prev` is not the hash")


@STRETCH
def test_a_source_that_skips_at_a_seam_is_found(stretch: int) -> None:
    rows = shipped([0, 1, 2, 3, 5])
    assert (joined(rows, stretch).reason or "").startswith("seq 4: source `sidecar-1` counts 5")


@STRETCH
def test_a_time_that_falls_back_at_a_seam_is_found(stretch: int) -> None:
    log = Log()
    for n in range(5):
        log.direct(make_record("heartbeat", f"h-{n}", b"{}"), at=START + (n if n < 4 else 0))
    assert "seq 4: its time is before" in (joined(log.rows, stretch).reason or "")


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


def test_another_tenants_log_is_not_this_one() -> None:
    assert "another log" in (walk(ROWS, HEAD, "other").reason or "")


def test_what_is_stored_is_json_that_anyone_can_read() -> None:
    for row in ROWS:
        entry = json.loads(row.entry)
        assert base64.b64decode(entry["prev"]) == (ROWS[row.seq - 1].hash if row.seq else b"")
