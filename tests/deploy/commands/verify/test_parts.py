"""Files that say of themselves that they are a part of the log: an end was asked for. No key signs
a file's header, so the claim must never make a log hold that would not hold without it."""

from io import BytesIO
from itertools import product
from pathlib import Path

import pytest

from deploy.commands.verify.check import CheckOptions, verify_file
from policies.trail.verdict.outcome import Outcome
from policies.trail.verdict.trusted_keys import parse_key
from tests.deploy.commands.verify.world import KEY, ROWS, SIZE, export, note, put, run
from tests.policies.test_vectors import vector

Capture = pytest.CaptureFixture[str]
FORGED = [*ROWS[:4], ROWS[4]._replace(hash=bytes(32)), *ROWS[5:]]
FILES = {
    "cut at a checkpoint": lambda part: export(ROWS[:20], part=part),
    "cut behind a checkpoint": lambda part: export(ROWS[:20], notes={17: note(17)}, part=part),
    "proven in a larger checkpoint": lambda part: export(ROWS[:20], tail=note(24), part=part),
    "from the middle": lambda part: export(ROWS[8:20], first=8, part=part),
    "without a checkpoint": lambda part: export(ROWS[:20], notes={}, part=part),
    "of a damaged entry": lambda part: export([*ROWS[:7], *ROWS[8:20]], part=part),
    "of another log's checkpoint": lambda part: export(
        ROWS[:20], notes={20: note(20, FORGED)}, part=part
    ),
    "whole": lambda part: export(part=part),
    "without entries": lambda part: export([], notes={}, part=part),
}


def verified(raw: bytes, *known: str, to_end: bool = False) -> Outcome:
    options = CheckOptions([parse_key(KEY)], known=known, to_end=to_end)
    return verify_file(lambda: BytesIO(raw), "the file", options, again=True)


def reasons(outcome: Outcome) -> list[str]:
    return [each.reason for each in outcome.findings]


def test_a_part_cut_at_the_newest_checkpoint_can_t_be_compared_with_a_later_one(
    tmp_path: Path, capsys: Capture
) -> None:
    later = put(tmp_path, note(30).encode(), "note")
    part = put(tmp_path, export(ROWS[:20], part=True))
    answer = run(capsys, part, "--key", KEY, "--checkpoint", later, "--json")
    assert (answer.code, answer.reasons) == (2, [])
    assert answer.json["completeness"]["part"] is True
    (left,) = answer.json["not_compared"]
    assert left["size"] == 30
    shown = run(capsys, part, "--key", KEY, "--checkpoint", later).out
    assert shown.startswith("INCOMPLETE: ")
    # It says what the claim rests on, and what to compare.
    assert "only the file's header says" in shown
    assert "compare an export of the whole log" in shown
    whole = put(tmp_path, export(ROWS[:20]))
    answer = run(capsys, whole, "--key", KEY, "--checkpoint", later, "--json")
    assert (answer.code, answer.reasons) == (1, ["log_behind_checkpoint"])
    assert answer.json["completeness"]["part"] is False


def test_the_summary_names_the_end_of_a_part(tmp_path: Path, capsys: Capture) -> None:
    shown = run(capsys, put(tmp_path, export(ROWS[:20], part=True)), "--key", KEY)
    assert shown.code == 0
    assert "the file is a part by its own header: it tells nothing of entries from 20 on" in (
        shown.out
    )
    assert "by its own header" not in run(capsys, put(tmp_path, export()), "--key", KEY).out


@pytest.mark.parametrize("name", FILES)
def test_the_claim_only_ever_turns_a_rollback_into_an_incomplete_comparison(name: str) -> None:
    sizes = (1, 8, 16, 17, 19, 20, 21, 24, 25, 30, SIZE)
    for size, rows in product(sizes, (ROWS, FORGED)):
        known = note(size, rows)
        claimed, plain = (verified(FILES[name](part), known) for part in (True, False))
        # Never better than before: what is not said to be a rollback is said as it was.
        if reasons(claimed) == reasons(plain):
            assert claimed.exit_code == plain.exit_code
        else:
            assert sorted([*reasons(claimed), "log_behind_checkpoint"]) == sorted(reasons(plain))
            assert claimed.exit_code in (1, 2)
        # Beyond the file, no claim is ever enough.
        if size > max(claimed.size, claimed.covered or 0):
            assert claimed.exit_code != 0


@pytest.mark.parametrize("name", FILES)
def test_without_a_checkpoint_the_claim_changes_no_verdict(name: str) -> None:
    claimed, plain = (verified(FILES[name](part)) for part in (True, False))
    assert (claimed.exit_code, reasons(claimed)) == (plain.exit_code, reasons(plain))
    wires = [each.to_wire() for each in (claimed, plain)]
    for wire, part in zip(wires, (True, False), strict=True):
        assert wire["completeness"].pop("part") is part
    assert wires[0] == wires[1]


def test_a_file_requested_without_an_end_is_no_part_whatever_it_claims() -> None:
    raw, known = export(ROWS[:20], part=True), note(30)
    assert reasons(verified(raw, known, to_end=True)) == ["log_behind_checkpoint"]
    assert verified(raw, known, to_end=True).partial is False


def test_the_golden_part_is_not_taken_for_a_rollback(tmp_path: Path, capsys: Capture) -> None:
    golden = vector("asked_part")
    later = put(tmp_path, golden["later"].encode(), "note")
    for name, code in (("part", 2), ("whole", 1)):
        path = put(tmp_path, golden[name].encode())
        answer = run(capsys, path, "--key", golden["key"], "--checkpoint", later, "--json")
        assert answer.code == code, answer.out
        assert run(capsys, path, "--key", golden["key"]).code == 0
