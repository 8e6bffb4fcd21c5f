"""`sluice verify report.json` alone: what holds, and what each alteration is called."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policies.ground.canonical import b64
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.merkle_tree import leaf_hash
from tests.deploy.commands.report.made import Capture, made
from tests.deploy.commands.verify.test_files import STRANGER
from tests.deploy.commands.verify.world import (
    KEY,
    SIGNER,
    SIZE,
    WITNESS_KEY,
    export,
    note,
    put,
    run,
)
from tests.deploy.commands.verify.world import witnessed as cosigned
from tests.policies.world import LOG


def entry(place: int, old: str, new: str) -> Callable[[Any], None]:
    def change(wire: Any) -> None:
        text = wire["entries"][place]["entry"]
        assert old in text
        wire["entries"][place]["entry"] = text.replace(old, new, 1)

    return change


def member(place: int, name: str, value: Any) -> Callable[[Any], None]:
    return lambda wire: wire["entries"][place].__setitem__(name, value)


ALTERED: dict[str, tuple[Callable[[Any], None], str]] = {
    "a verdict": (entry(0, "ALLOW", "DENY"), "root_mismatch"),
    "a number": (entry(0, '"seq":3', '"seq":2'), "root_mismatch"),
    "white space": (entry(0, '{"cm"', '{ "cm"'), "not_canonical"),
    "no JSON": (entry(0, '{"cm"', '{"cm'), "not_an_entry"),
    "another log": (entry(0, '"log":"default"', '"log":"other"'), "wrong_log"),
    "no proof": (member(0, "proof", None), "root_mismatch"),
    "an empty proof": (member(0, "proof", []), "root_mismatch"),
    "a wrong proof": (member(0, "proof", [b64(leaf_hash(b""))]), "root_mismatch"),
    "a short hash": (member(0, "proof", ["AAAA"]), "file_malformed"),
    "another's openings": (
        member(0, "openings", '{"query":["AAAA","x"]}'),
        "opening_mismatch",
    ),
    "a value": (
        lambda wire: member(
            0, "openings", wire["entries"][0]["openings"].replace("ann@", "bob@")
        )(wire),
        "opening_mismatch",
    ),
    "openings of a number": (member(0, "openings", "5"), "opening_mismatch"),
    "an entry twice": (lambda wire: wire["entries"].insert(0, wire["entries"][0]), "wrong_seq"),
    "another order": (lambda wire: wire["entries"].reverse(), "wrong_seq"),
    "the checkpoint's size": (
        lambda wire: wire.update(checkpoint=wire["checkpoint"].replace(f"\n{SIZE}\n", "\n31\n")),
        "signature_missing",
    ),
    "another's checkpoint": (
        lambda wire: wire.update(checkpoint=note(SIZE, signer=STRANGER)),
        "signature_missing",
    ),
    "no checkpoint": (lambda wire: wire.update(checkpoint=None), "checkpoint_missing"),
    "no note": (lambda wire: wire.update(checkpoint="x"), "checkpoint_unreadable"),
    "no entries": (lambda wire: wire.pop("entries"), "file_malformed"),
    "a list of numbers": (lambda wire: wire.update(entries=[1]), "file_malformed"),
    "keys of numbers": (lambda wire: wire.update(keys=[1]), "file_malformed"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERED)
def test_each_alteration_is_named(name: str, tmp_path: Path, capsys: Capture) -> None:
    wire, _ = made(tmp_path, capsys, "--agent", "agt_a")
    change, reason = ALTERED[name]
    change(wire)
    path = put(tmp_path, json.dumps(wire).encode(), "report.json")
    answer = run(capsys, path, "--key", KEY, "--json")
    assert answer.code == 1
    assert reason in answer.reasons, answer.reasons
    assert not answer.json["valid"]
    assert "NOT VALID" in run(capsys, path, "--key", KEY).out


def test_a_report_is_valid_without_any_other_file(tmp_path: Path, capsys: Capture) -> None:
    content = export(notes={SIZE: cosigned(note(SIZE))})
    wire, _ = made(tmp_path, capsys, "--agent", "agt_a", content=content)
    path = str(tmp_path / "out/report.json")
    Path(tmp_path / "log.jsonl").unlink()
    answer = run(capsys, path, "--key", KEY, "--witness", WITNESS_KEY, "--json")
    assert answer.code == 0
    assert answer.json == {
        "valid": True, "level": "witnessed", "entries": len(wire["entries"]), "findings": [],
        "more_findings": 0, "unproven_tail": 0, "not_recomputable": None, "not_derived": [],
        "not_compared": [], "documents": {"checked": False, "found": None, "gone": []},
        "log": LOG, "origin": LOG, "claimed_keys": [KEY],
        "signed_by": {"key": b64(SIGNER.public), "how": "pinned"},
    }  # fmt: skip
    text = run(capsys, path).out
    assert "unsigned: no key is pinned" in text
    assert KEY in text
    stranger = run(capsys, path, "--key", b64(STRANGER.public), "--json")
    assert stranger.reasons == ["signature_missing", "checkpoint_missing"]


def test_a_checkpoint_from_elsewhere_must_agree(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, capsys, "--agent", "agt_a")
    path = str(tmp_path / "out/report.json")
    same = put(tmp_path, note(SIZE).encode(), "same")
    assert run(capsys, path, "--key", KEY, "--checkpoint", same).code == 0
    fork = checkpoint.sign(Checkpoint(LOG, SIZE, bytes(32)), SIGNER)
    other = put(tmp_path, fork.encode(), "fork")
    answer = run(capsys, path, "--key", KEY, "--checkpoint", other, "--json")
    assert answer.reasons == ["root_mismatch"]
    # One of another size: nothing in a report leads from one to the other.
    answer = run(
        capsys, path, "--key", KEY, "--checkpoint", put(tmp_path, note(5).encode(), "older")
    )
    assert (answer.code, answer.out.partition(": ")[0]) == (2, "INCOMPLETE"), answer.out


def test_entries_that_no_checkpoint_covers_make_a_report_incomplete(
    tmp_path: Path, capsys: Capture
) -> None:
    made(tmp_path, capsys, "--agent", "agt_a")
    wire = json.loads((tmp_path / "out/report.json").read_bytes())
    # A small true checkpoint, and entries that lie beyond it: anyone can make these up.
    beyond = {"entry": wire["entries"][-1]["entry"], "openings": None, "proof": None}
    forged = {**wire, "checkpoint": note(5), "entries": [beyond]}
    path = put(tmp_path, json.dumps(forged).encode(), "beyond.json")
    answer = run(capsys, path, "--key", KEY)
    assert (answer.code, answer.out.partition(": ")[0]) == (2, "INCOMPLETE"), answer.out
    assert "0 of 1 entry is in the log" in answer.out
    shown = run(capsys, path, "--key", KEY, "--json")
    assert (shown.code, shown.json["unproven_tail"]) == (2, 1)
    without = put(tmp_path, json.dumps({**forged, "checkpoint": None}).encode(), "none.json")
    assert run(capsys, without).code == 2


def test_every_truncation_of_a_report_is_a_finding(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, capsys, "--event", "event-3")
    whole = (tmp_path / "out/report.json").read_bytes()
    for size in range(40, len(whole) - 1, 97):
        answer = run(capsys, put(tmp_path, whole[:size], "cut.json"), "--key", KEY, "--json")
        assert (answer.code, answer.reasons) == (1, ["file_malformed"])


@pytest.mark.parametrize("content", [b"[" * 100_000, b"1e400", b"\xff", b'{"a":', b"null"])
def test_hostile_members_are_a_finding(content: bytes, tmp_path: Path, capsys: Capture) -> None:
    raw = b'{"format":"sluice-report/1","entries":' + content
    for end in (b"", b"}"):
        answer = run(capsys, put(tmp_path, raw + end, "report.json"), "--json")
        assert (answer.code, answer.reasons) == (1, ["file_malformed"])


def test_policies_are_not_derived_from_a_report(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, capsys, "--agent", "agt_a")
    answer = run(capsys, str(tmp_path / "out/report.json"), "--recompute")
    assert (answer.code, "--recompute needs an export" in answer.err) == (2, True)
