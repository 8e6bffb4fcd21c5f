"""A browser that has verified a log before says how it changed: not at all, wrongly, or as only
a reader can judge."""

from __future__ import annotations

from typing import Any

import pytest

from policies.ground.canonical import b64
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint, accepted_incarnation_record
from policies.trail.merkle_tree import leaf_hash
from policies.trail.proofs.tree_proofs import TlogProof
from tests import servers
from tests.control_api.console.proofs.verdicts import Case, in_browser, on_the_page
from tests.policies.trail.proofs.naive_proofs import naive_consistency
from tests.policies.world import LOG, Log, decided, naive_root

pytestmark = pytest.mark.skipif(servers.find("node") is None, reason=servers.how("node"))

LEAVES = [leaf_hash(b"entry %d" % number) for number in range(9)]
PURGED = {"status": 409, "message": "the first 5 entries were purged, and with them what proves it"}


def grown(old: int, new: int, answer: Any = None, root: bytes | None = None) -> Case:
    """A log that had `old` entries and has `new` now. The service answers with `answer` if it is
    given, else with the proof."""
    known = {"size": str(old), "root": b64(root or naive_root(LEAVES[:old]))}
    found = {"size": str(new), "root": b64(naive_root(LEAVES[:new]))}
    if answer is None and old < new:
        answer = {"hashes": [b64(each) for each in naive_consistency(old, LEAVES[:new])]}
    return ("growth", known, found, answer)


def test_growth_that_the_browser_cannot_prove_is_left_to_the_reader() -> None:
    unchanged, same, purged, away = in_browser(
        [
            grown(5, 9),
            grown(9, 9),
            grown(5, 9, PURGED),
            grown(5, 9, {"status": 409, "message": "no checkpoint yet"}),
        ]
    )
    assert unchanged["told"].startswith("The log's first 5 entries")
    assert same == {"told": None}
    assert purged["title"] == "Verified, but for the log's growth"
    assert "the first 5 entries were purged" in purged["unconfirmed"]
    assert naive_root(LEAVES).hex() in purged["unconfirmed"]
    assert purged["next"] == "next"
    assert away == {"failed": "no checkpoint yet"}


def test_a_log_that_did_not_grow_is_refused() -> None:
    other = bytes(32)
    told = in_browser([grown(9, 5), grown(9, 9, root=other), grown(5, 9, root=other)])
    assert ["put back" in told[0]["refused"], told[0]["smaller"]] == [True, True]
    assert ["rewritten" in each["refused"] for each in told[1:]] == [True, True]


def test_an_accepted_incarnation_is_explained_for_its_reader_to_confirm() -> None:
    signer, other, log, origin = Signer(bytes(32)), Signer(bytes(range(32))), Log(), f"{LOG}#1"
    cited = checkpoint.sign(Checkpoint(LOG, 5, naive_root(LEAVES[:5])), signer)
    why = "restored from a backup"
    log.direct(accepted_incarnation_record(LOG, 1, cited, why, record_id="event-1"))
    root = naive_root([leaf_hash(log.rows[0].entry)])
    known = {"size": "5", "root": b64(naive_root(LEAVES[:5])), "log": LOG, "origin": LOG}

    def case(number: int = 1, by: Signer = signer, given: bool = True, **before: str) -> Case:
        at = Checkpoint(f"{LOG}#{number}", 1, root)
        proof = TlogProof(0, (), checkpoint.sign(at, by), log.rows[0].entry).text()
        found = {"size": "1", "root": b64(root), "origin": at.origin}
        return (
            "accepted",
            known | before,
            found,
            LOG,
            b64(signer.public),
            proof if given else None,
        )

    [told, *refused] = in_browser(
        [case(), case(origin=f"{LOG}#2"), case(given=False), case(2), case(by=other)]
    )
    assert told["title"] == "The log goes on as a new incarnation"
    for part in (f'says: "{why}"', "this browser had verified 5 entries", f"printed {origin}"):
        assert part in told["unconfirmed"]
    assert f"had 5 entries, the root {naive_root(LEAVES[:5]).hex()}" in told["unconfirmed"]
    assert told["next"] == "next"
    reasons = ("the log was put back", "no entry that accepts it", "about another log", "")
    for each, reason in zip(refused, reasons, strict=True):
        assert reason in each["refused"]


@pytest.mark.parametrize(
    ("accepted", "title"),
    [(False, "Verified, but for the log's growth"), (True, "The log goes on as a new incarnation")],
    ids=["purged", "accepted"],
)
def test_a_purge_or_a_new_incarnation_is_explained_confirmed_and_remembered(
    accepted: bool, title: str
) -> None:
    signer, log, origin = Signer(bytes(32)), Log(), f"{LOG}#1" if accepted else LOG
    log.direct(accepted_incarnation_record(LOG, 1, None, "restored", record_id="event-0"))
    log.direct(decided())
    leaves = [leaf_hash(row.entry) for row in log.rows]
    note = checkpoint.sign(Checkpoint(origin, 2, naive_root(leaves)), signer)
    first, second = (
        TlogProof(at, (leaves[1 - at],), note, row.entry).text() for at, row in enumerate(log.rows)
    )
    shown = log.rows[1].columns
    assert shown is not None
    answer: dict[str, Any] = {
        "proof": second,
        "incarnation": first if accepted else None,
        "witnesses": [],
    }
    key = b64(signer.public)
    visit = {
        "tenant": LOG,
        "event": shown.eid,
        "seq": "1",
        "known": {"log": LOG, "origin": LOG, "key": key, "size": "1", "root": b64(bytes(32))},
        "answers": {
            "proof": {"status": 200, "body": {**answer, "log_key": key, "log_key_history": []}},
            "growth": {"status": 409, "body": PURGED},
        },
    }
    before, confirmed, again = on_the_page(visit)
    assert (before["title"], before["asks"]) == (title, True)
    assert ("restored" if accepted else "were purged") in before["text"]
    assert confirmed == again
    assert (confirmed["title"], confirmed["asks"]) == ("Verified by this browser", False)


@pytest.mark.parametrize(
    ("origin", "number"),
    [("a/b", 0), ("a/b#1", 1), ("a/b#12", 12), ("a/b#0", None), ("a/b#01", None), ("a/c#1", None)],
)
def test_an_origin_names_its_incarnation(origin: str, number: int | None) -> None:
    assert in_browser([("incarnation", origin, "a/b")]) == [number]
