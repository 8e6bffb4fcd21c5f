"""`sluice verify` and the second verifier say the same of 500 files, good and damaged, and of every
truncation of a small one: valid or not, the first bad entry, and the reason."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from control_api.verifier.__main__ import main
from tests.second_verifier.drafts import draw
from tests.second_verifier.findings import NotAnExport
from tests.second_verifier.notes import read_key
from tests.second_verifier.samples import Sample, finished, sample
from tests.second_verifier.verifier import Pins, verify

FILES = 500


class Verdict(NamedTuple):
    """What both verifiers must say of a file. A file that is no export has only its exit code."""

    code: int
    seq: int | None = None
    reason: str = ""
    level: str = ""


@pytest.mark.parametrize("numbers", [range(at, FILES, 10) for at in range(10)], ids=str)
def test_both_verifiers_agree(
    numbers: range, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in numbers:
        drawn = sample(number)
        ours, theirs = second_verdict(drawn), product_verdict(drawn, tmp_path / "log", capsys)
        assert ours == theirs, f"file {number}: {drawn.done}"


def test_both_verifiers_agree_on_every_truncation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = _small()
    assert second_verdict(whole).code == 0
    for end in range(len(whole.raw)):
        cut = whole._replace(raw=whole.raw[:end])
        verdict = second_verdict(cut)
        assert verdict.code != 0
        assert verdict == product_verdict(cut, tmp_path / "log", capsys), f"cut at byte {end}"


def test_the_files_are_good_and_bad_in_every_way() -> None:
    """The agreement means something: most reasons that a file can have occur."""
    verdicts = [second_verdict(sample(number)) for number in range(FILES)]
    assert sum(verdict.code == 0 for verdict in verdicts) > 100
    assert {verdict.level for verdict in verdicts} >= {"unsigned", "signed", "witnessed"}
    assert {verdict.reason for verdict in verdicts} >= {
        *("not_an_entry", "not_canonical", "outside_profile", "wrong_members", "too_large"),
        *("entries_missing", "wrong_seq", "wrong_log", "chain_broken", "time_reversed"),
        *("duplicate_id", "source_gap", "source_chain_broken", "opening_missing"),
        *("opening_mismatch", "root_mismatch", "checkpoint_unreadable", "checkpoint_missing"),
        *("quorum_missing", "file_malformed"),
    }


def second_verdict(drawn: Sample) -> Verdict:
    witnesses = tuple(read_key(key) for key in drawn.witnesses)
    pins = Pins(tuple(read_key(key).public for key in drawn.keys), witnesses)
    try:
        answer = verify(BytesIO(drawn.raw), pins)
    except NotAnExport:
        return Verdict(2)
    found = answer.first()
    if found is None:
        return Verdict(0, level=answer.level)
    return Verdict(1, found.seq, found.reason)


def product_verdict(drawn: Sample, path: Path, capsys: pytest.CaptureFixture[str]) -> Verdict:
    path.write_bytes(drawn.raw)
    arguments = [str(path), "--json"]
    for key in drawn.keys:
        arguments += ["--key", key]
    for key in drawn.witnesses:
        arguments += ["--witness", key]
    code = main(arguments)
    printed = capsys.readouterr().out
    if code == 2:
        return Verdict(2)
    answer = json.loads(printed)
    if code == 0:
        return Verdict(0, level=answer["level"])
    findings = answer["findings"]
    of_entries = [found for found in findings if found["seq"] is not None]
    first = min(of_entries, key=lambda found: found["seq"]) if of_entries else findings[0]
    return Verdict(1, first["seq"], first["reason"])


def _small() -> Sample:
    for seed in range(1000):
        draft = draw(Random(seed))
        if 2 < draft.stop - draft.start < 5 and draft.with_openings:
            raw = finished(draft.lines())
            return Sample(raw, "cut off", draft.pinned(), draft.witness_keys())
    raise AssertionError("no seed draws such a log")
