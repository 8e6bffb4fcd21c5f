"""Records that were refused or marked: every verifier knows both, and refuses what is neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode
from policies.trail.core import marks_fault, rejected_record
from policies.trail.entry import StoredRow, audit_event, index_of
from policies.trail.findings import Reason
from policies.trail.merkle_tree import leaf_hash
from policies.trail.spool_chain import read_place
from policies.trail.verify import Verifier
from policies.trail.walk.joined_walk import JoinedWalk
from policies.trail.walk.range_walk import RangeWalk
from tests.policies.world import LOG, judged_log

Change = Callable[[dict[str, Any]], object]


def resealed(at: int, change: Change) -> list[bytes]:
    """The log with a changed entry, as an insider with the log's key would write it: every later
    `prev` fits."""
    raws, prev = [], ""
    for row in judged_log().rows:
        entry = orjson.loads(row.entry)
        entry["prev"] = prev
        if row.seq == at:
            change(entry)
        raws.append(encode(entry))
        prev = b64(leaf_hash(raws[-1]))
    return raws


def findings(raws: list[bytes]) -> set[tuple[int | None, Reason] | None]:
    """What both walks find."""
    rows, ranges = Verifier(LOG), RangeWalk(with_openings=False)
    for seq, raw in enumerate(raws):
        rows.feed(StoredRow(seq, raw))
    ranges.feed(b"\n".join(b'{"entry":%b}' % raw for raw in raws))
    joined = JoinedWalk(LOG)
    joined.join(ranges.result(), lambda *_: None)
    found = (rows.finish().finding, joined.broken)
    return {None if each is None else (each.seq, each.reason) for each in found}


def put(*path: str, value: object) -> Change:
    def change(entry: dict[str, Any]) -> None:
        for name in path[:-1]:
            entry = entry[name]
        entry[path[-1]] = value

    return change


def test_either_walk_accepts_refused_and_marked_records() -> None:
    assert findings([row.entry for row in judged_log().rows]) == {None}


@pytest.mark.parametrize(
    ("at", "change", "reason"),
    [
        (1, put("pub", "hash", value=b64(bytes(32))), Reason.NOT_AN_ENTRY),
        (1, put("pub", "hash", value=b64(bytes(31))), Reason.NOT_AN_ENTRY),
        (1, put("pub", "hash", value=7), Reason.NOT_AN_ENTRY),
        (1, put("pub", "core", "eid", value="another"), Reason.NOT_AN_ENTRY),
        (1, put("pub", "more", value=1), Reason.NOT_AN_ENTRY),
        (1, put("src", "n", value=2), Reason.SOURCE_GAP),
        (1, put("src", "prev", value=b64(bytes(32))), Reason.SOURCE_CHAIN_BROKEN),
        (2, put("marks", value=[]), Reason.NOT_AN_ENTRY),
        (2, put("marks", value=["late"]), Reason.NOT_AN_ENTRY),
        (2, put("marks", value="time_doubtful"), Reason.NOT_AN_ENTRY),
        (3, put("marks", value=["time_doubtful", "agent_foreign"]), Reason.NOT_AN_ENTRY),
        (2, lambda entry: entry.pop("src"), Reason.WRONG_MEMBERS),
        (1, lambda entry: entry["pub"].update(n=entry.pop("src")["n"]), Reason.NOT_AN_ENTRY),
    ],
)
def test_either_walk_finds_changed_refused_and_marked_records(
    at: int, change: Change, reason: Reason
) -> None:
    assert findings(resealed(at, change)) == {(at, reason)}


def test_a_wrong_hash_in_place_of_a_core_is_found_at_the_next_record() -> None:
    changed = resealed(5, put("pub", "hash", value=b64(bytes(32))))
    assert findings(changed) == {(6, Reason.SOURCE_CHAIN_BROKEN)}


def test_a_doubtful_time_is_marked_and_replaced_by_the_arrival() -> None:
    rows = judged_log().rows
    entries = [orjson.loads(row.entry) for row in rows]
    event = audit_event(entries[2], b"", rows[2].openings)
    assert (event["time_doubtful"], event["timestamp"]) == (True, entries[2]["ts"])
    assert event["agent_foreign"] is False
    event = audit_event(entries[4], b"", rows[4].openings)
    assert (event["time_doubtful"], event["timestamp"]) == (False, entries[4]["src"]["t"])
    assert event["agent_foreign"] is True
    refused = index_of(entries[1])
    assert (refused.kind, refused.agent_id, refused.decision) == ("rejected_record", None, None)


@pytest.mark.parametrize("marks", [None, {}, [1], [["time_doubtful"]], ["x"], [None]])
def test_marks_of_any_form_are_judged(marks: object) -> None:
    assert marks_fault(marks) is not None


def test_a_core_that_nests_too_deeply_is_left_out() -> None:
    core: dict[str, Any] = {}
    for _ in range(63):
        core = {"a": core}
    kept = orjson.loads(rejected_record(core["a"], "r", "key_1", record_id="e").pub)
    left_out = orjson.loads(rejected_record({"a": core}, "r", "key_1", record_id="e").pub)
    assert (kept["core"], left_out["core"]) == (core["a"], None)


@pytest.mark.parametrize(
    "src",
    [None, {}, {"n": -1, "prev": "", "t": ""}, {"n": True, "prev": ""}, {"n": 1, "prev": "A"}],
)
def test_an_invalid_place_in_a_spool_is_not_read(src: object) -> None:
    assert read_place({"core": {"src": src}, "open": {}}) is None


def test_a_place_is_read_even_if_the_record_is_invalid() -> None:
    core = {"src": {"n": 0, "prev": "", "t": "yesterday"}, "x": 1}
    assert read_place({"core": core}) == (core, (0, "", ""))
    assert read_place({"core": {**core, "x": 0.5}}) is None
