"""Logs that were forged whole, hash for hash: the format and the sidecars' own chains reveal it."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode, rfc3339
from policies.trail.entry import StoredRow, index_of
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import MAX_ENTRY
from tests.policies.trail.small_log import broken, forged, head_of, walk
from tests.policies.world import START, Log, decided


def at_one(change: Callable[[dict[str, Any]], object]) -> Callable[[int, dict[str, Any]], object]:
    return lambda seq, entry: change(entry) if seq == 1 else None


def test_a_forged_log_that_is_consistent_passes() -> None:
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


@pytest.mark.parametrize("tamper", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_a_forged_entry_in_another_encoding_is_found(tamper: Callable[[bytes], bytes]) -> None:
    def seal(entry: dict[str, Any]) -> bytes:
        raw = encode(entry)
        if entry["seq"] == 1:
            assert tamper(raw) != raw
        return tamper(raw) if entry["seq"] == 1 else raw

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


def test_a_sidecar_s_records_in_their_order_are_valid() -> None:
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


def test_each_instance_has_its_own_chain() -> None:
    log = Log()
    for n, (source, instance) in enumerate([("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")] * 3):
        log.shipped(decided(seed=n), source, instance)
    assert walk(log.rows, log.head()).valid
