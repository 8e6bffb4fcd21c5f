"""The golden log of an erasure and of legal holds, each byte computed again without the code under
test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import orjson

from policies.ground.canonical import encode
from policies.trail.change import Hold, hold_placed, hold_released
from policies.trail.entry import StoredRow, index_of
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.file import LogFileReader
from policies.trail.record import Record
from policies.trail.removal import redact_record
from policies.trail.verify import LogHead, VerificationReport, Verifier
from tests.policies.test_vectors import stdlib, u32, vector
from tests.policies.world import naive_root, salt

USER = "ann@example.com"
MIDNIGHT = 1_767_225_600_000_000
WHY = "litigation 2026-9"


def held(number: int, kind: str, object_id: str) -> dict[str, Any]:
    """A hold as its route shows it, without `seq`."""
    return {
        "hold_id": f"hld_{number}", "object_type": kind, "object_id": object_id, "reason": WHY,
        "placed_by": "key_1", "placed_at": f"2026-01-01T00:00:00.00{3 + number}000Z",
        "released_by": None, "released_at": None,
    }  # fmt: skip


# A user's id is left out: only `cm.user_id` says whose hold it is.
SHOWN = (held(1, "session", "s_1"), held(2, "user", ""))
DETAILS = (
    {"object_type": "session", "object_id": "s_1", "reason": WHY},
    {"object_type": "user", "reason": WHY},
)


def digest(shown: dict[str, Any]) -> str:
    return hashlib.sha256(stdlib(shown)).hexdigest()


def placed(number: int) -> dict[str, Any]:
    shown = SHOWN[number - 1]
    return {
        "by": "key_1", "what": "hold.placed", "target": f"hld_{number}",
        "detail": DETAILS[number - 1], "before": None, "before_sha256": None,
        "after": shown, "after_sha256": digest(shown),
    }  # fmt: skip


def released(number: int) -> dict[str, Any]:
    shown = SHOWN[number - 1]
    changed = {"released_by": "key_1", "released_at": f"2026-01-01T00:00:00.00{5 + number}000Z"}
    return {
        "by": "key_1", "what": "hold.released", "target": f"hld_{number}",
        "detail": {"reason": "settled"},
        "before": dict.fromkeys(changed), "before_sha256": digest(shown),
        "after": changed, "after_sha256": digest(shown | changed),
    }  # fmt: skip


PUBLIC = {
    4: placed(1),
    5: placed(2),
    6: released(1),
    7: released(2),
    8: {"by": "key_1", "events": [[0, 1], [3, 3], [5, 5]], "reason": "erasure request 2026-114"},
}
"""What the format document says of `pub`, by the entry's number."""


def made() -> list[Record]:
    session = Hold("hld_1", "session", "s_1", WHY, "key_1", MIDNIGHT + 4000)
    user = Hold("hld_2", "user", USER, WHY, "key_1", MIDNIGHT + 5000)
    return [
        hold_placed(session, record_id="hold-4", salt=salt(4)),
        hold_placed(user, record_id="hold-5", salt=salt(5)),
        hold_released(session, "key_1", MIDNIGHT + 6000, "settled", record_id="release-6"),
        hold_released(user, "key_1", MIDNIGHT + 7000, "settled", record_id="release-7"),
        redact_record("key_1", "erasure request 2026-114", [0, 1, 3, 5], record_id="redact-8"),
    ]


def user_commitment() -> str:
    """The commitment of the user's hold, by the standard library."""
    by_field = hmac.digest(salt(5), b"audit/field-salt/v1\0user_id", "sha256")
    value = stdlib(USER)
    message = b"audit/field/v1\0" + u32(7) + b"user_id" + u32(len(value)) + value
    return base64.b64encode(hmac.digest(by_field, message, "sha256")).decode()


def test_holds_and_erasures_equal_the_golden_ones() -> None:
    entries = vector("erasure")["entries"]
    for seq, record in enumerate(made(), 4):
        stored = entries[seq]["utf8"]
        entry = json.loads(stored)
        assert record.entry(entry["log"], seq, entry["prev"], entry["ts"]).decode() == stored
        assert entry["kind"] == ("redact" if seq == 8 else "change")
        assert entry["pub"] == PUBLIC[seq]
        assert entry["cm"] == ({"user_id": user_commitment()} if seq == 5 else {})


def test_every_byte_is_canonical_and_chained() -> None:
    log, prev, leaves = vector("erasure"), "", []
    for seq, stored in enumerate(log["entries"]):
        raw = stored["utf8"].encode()
        entry = json.loads(raw)
        assert stdlib(entry) == raw
        assert (entry["seq"], entry["prev"], entry["log"]) == (seq, prev, log["log"])
        leaves.append(hashlib.sha256(b"\0" + raw).digest())
        assert stored["leaf"] == leaves[-1].hex()
        prev = base64.b64encode(leaves[-1]).decode()
    assert naive_root(leaves).hex() == log["root"]
    # Nothing that was erased is left; the decision that was not erased still has its values.
    holding = [seq for seq, stored in enumerate(log["entries"]) if USER in json.dumps(stored)]
    assert holding == [2]


def walked(
    until: int, changed: dict[int, dict[str, Any]] | None = None
) -> tuple[VerificationReport, list[int]]:
    """The verdict on the entries before `until`, with other openings of some, and the entries whose
    openings are missed."""
    log = vector("erasure")
    verifier = Verifier(log["log"])
    for seq, stored in enumerate(log["entries"][:until]):
        raw, leaf = stored["utf8"].encode(), bytes.fromhex(stored["leaf"])
        openings = (changed or {}).get(seq, stored["openings"])
        row = StoredRow(seq, raw, leaf, index_of(orjson.loads(raw)), encode(openings))
        verifier.feed(row)
    size, last, ts, frontier = log["head"]
    head = LogHead(size, bytes.fromhex(last), ts, bytes.fromhex(frontier))
    report = verifier.finish(head if size == until else None)
    return report, verifier.erasures.pending(9)


def test_the_log_verifies_with_its_erased_openings() -> None:
    report, missing = walked(9)
    assert report.valid, report
    assert missing == []
    assert report.root_hash == vector("erasure")["root"]


def test_an_opening_that_no_entry_names_is_missed() -> None:
    # Entry 2 lies between two ranges of the `redact` entry, and in none of them.
    report, missing = walked(9, {2: {}})
    assert not report.valid
    assert missing == [2]
    assert "seq 2: " in str(report.reason)


def test_only_the_redact_entry_excuses_missing_openings() -> None:
    report, missing = walked(8)
    assert not report.valid
    assert "seq 0: " in str(report.reason)
    assert missing == [0, 1, 3, 5]


def test_the_golden_part_brings_its_erasure_along() -> None:
    golden = vector("erased_part")["part"].encode()
    *body, proof, note, erasure, _ = [json.loads(line) for line in golden.splitlines()]
    log = [orjson.loads(each["utf8"]) for each in vector("erasure")["entries"]]
    assert [line["entry"] for line in body if "entry" in line] == log[:6]
    assert json.loads(erasure["erasure"]) == log[8]
    # The last leaf of nine: its only neighbour is the tree of the eight before it.
    leaves = [bytes.fromhex(each["leaf"]) for each in vector("erasure")["entries"]]
    left = naive_root(leaves[:8])
    assert erasure["proof"] == [base64.b64encode(left).decode()]
    root = hashlib.sha256(b"\1" + left + leaves[8]).digest()
    assert note["checkpoint"].split("\n")[1:3] == ["9", base64.b64encode(root).decode()]
    assert len(proof["hashes"]) == 4
    reader = LogFileReader()
    lines = list(reader.feed(golden))
    reader.finish()
    assert b"".join(map(encode_line, lines)) == golden
