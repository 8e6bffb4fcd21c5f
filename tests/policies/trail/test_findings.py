"""Each way to damage an entry has a reason of its own in the closed list."""

from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode, rfc3339
from policies.trail.entry import StoredRow
from policies.trail.findings import SENTENCES, Finding, Reason
from policies.trail.verify import Verifier
from tests.policies.trail.small_log import BARE, HEAD, ROWS, replaced, walk
from tests.policies.world import LOG, START

SOURCED = next(row.seq for row in ROWS if b'"src":' in row.entry)


def changed(at: int, **members: Any) -> StoredRow:
    return StoredRow(at, encode(orjson.loads(ROWS[at].entry) | members))


def src(**members: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(ROWS[SOURCED].entry)["src"]
    return found | members


ROW = ROWS[3]
assert ROW.columns is not None
WITHOUT_OPENINGS = ROW._replace(openings=b"{}")
OPENED: dict[str, Any] = orjson.loads(ROW.openings or b"")
SWAPPED = ROW._replace(openings=encode({path: [salt, "x"] for path, (salt, _) in OPENED.items()}))
DAMAGES = {
    Reason.NOT_AN_ENTRY: StoredRow(3, b"{"),
    Reason.NOT_CANONICAL: StoredRow(3, ROW.entry.replace(b",", b", ")),
    Reason.OUTSIDE_PROFILE: changed(3, pub={"A": 1}),
    Reason.WRONG_MEMBERS: changed(3, more=1),
    Reason.TOO_LARGE: changed(3, pub={"a": "x" * 65536}),
    Reason.ENTRIES_MISSING: ROWS[5],
    Reason.ENTRY_MISPLACED: ROWS[2],
    Reason.WRONG_SEQ: changed(3, seq=4),
    Reason.WRONG_LOG: changed(3, log="other"),
    Reason.CHAIN_BROKEN: changed(3, prev=""),
    Reason.TIME_REVERSED: changed(3, ts=rfc3339(START - 1)),
    Reason.HASH_MISMATCH: ROW._replace(hash=bytes(32)),
    Reason.COLUMN_MISMATCH: ROW._replace(columns=ROW.columns._replace(agent_role="other")),
    Reason.OPENING_MISSING: WITHOUT_OPENINGS,
    Reason.OPENING_MISMATCH: SWAPPED,
    Reason.SOURCE_GAP: changed(SOURCED, src=src(n=7)),
    Reason.SOURCE_CHAIN_BROKEN: changed(SOURCED, src=src(prev=b64(bytes(32)))),
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_each_damage_has_its_reason(reason: Reason) -> None:
    row = DAMAGES[reason]
    rows = [*BARE[:3], row] if row.hash is None else replaced(3, row)
    found = walk(rows).finding
    assert found is not None
    assert (found.seq, found.reason) == (row.seq, reason)
    assert found.message.startswith(f"seq {row.seq}: ")


def test_an_unexpected_root_has_its_reason() -> None:
    verifier = Verifier(LOG)
    verifier.expect(4, bytes(32))
    verifier.feed_all(ROWS)
    found = verifier.finish().finding
    assert found is not None
    assert (found.seq, found.reason) == (3, Reason.ROOT_MISMATCH)


def test_a_head_that_does_not_fit_has_its_reason() -> None:
    found = walk(ROWS[:-1], HEAD).finding
    assert found is not None
    assert (found.seq, found.reason) == (len(ROWS) - 1, Reason.HEAD_MISMATCH)


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)
    assert all(sentence.endswith(".") for sentence in SENTENCES.values())
    assert len(set(SENTENCES.values())) == len(SENTENCES)


def test_a_finding_shows_its_code_and_its_place() -> None:
    found = Finding(5, Reason.CHAIN_BROKEN, "seq 5: `prev` is wrong", "event-5")
    assert found.place == "event-5"
    assert found._replace(eid=None).place == "5"
    assert found.text() == "chain_broken: seq 5: `prev` is wrong"
    assert found.to_wire() == {"seq": 5, "reason": "chain_broken", "message": found.message}
