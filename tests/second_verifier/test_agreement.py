"""`sluice verify` and the second verifier say the same of 500 files, good and damaged, and of every
truncation of a small one: valid or not, the first bad entry, and the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.commands.verify.__main__ import main
from deploy.commands.verify.check import CheckOptions, verify_file
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.trusted_keys import parse_key
from tests.second_verifier.drafts import finished
from tests.second_verifier.drawing import smallest
from tests.second_verifier.findings import NotAnExport
from tests.second_verifier.notes import read_key
from tests.second_verifier.samples import Sample, sample
from tests.second_verifier.verifier import Pins, verify

FILES = 500


class Verdict(NamedTuple):
    """What both verifiers must say of a file. A file that is no export has only its exit code."""

    code: int
    seq: int | None = None
    reason: str = ""
    level: str = ""


def test_both_verifiers_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts, whole = [], []
    for number in range(FILES):
        drawn = sample(number)
        ours, theirs = second_verdict(drawn), product_verdict(drawn, tmp_path / "log", capsys)
        assert ours == theirs, f"file {number}: {drawn.done}"
        verdicts.append(ours)
        whole += [drawn.raw] if ours.code == 0 else []
    # The agreement means something: all that a file can have occurs in files that hold, and most
    # reasons in the others.
    others = ("lineage", "change", "gap", "heartbeat", "rejected_record")
    for kind in ("purge", "incarnation", "redact", *others):
        assert sum(b'"kind":"%b"' % kind.encode() in raw for raw in whole) > 10, kind
    assert sum(b'"marks":["agent_foreign","time_doubtful"]' in raw for raw in whole) > 10
    for line in (b'{"policy":', b'{"frontier":', b'{"hashes":', b'{"checkpoint":"default#1'):
        assert sum(b"\n" + line in raw for raw in whole) > 10, line
    assert len(whole) > 100
    assert {verdict.level for verdict in verdicts} >= {"unsigned", "signed", "witnessed"}
    assert {verdict.reason for verdict in verdicts} >= {
        *("not_an_entry", "not_canonical", "outside_profile", "wrong_members", "too_large"),
        *("entries_missing", "wrong_seq", "wrong_log", "chain_broken", "time_reversed"),
        *("duplicate_id", "source_gap", "source_chain_broken", "opening_missing"),
        *("opening_mismatch", "root_mismatch", "checkpoint_unreadable", "checkpoint_missing"),
        *("quorum_missing", "file_malformed", "signature_missing", "purge_mismatch"),
        "purge_uncovered",
    }
    # Of the smallest one, also if it is cut at a line's end, or beside it.
    cut = _whole()
    ends = [at for at in range(len(cut.raw)) if cut.raw[at : at + 1] == b"\n"]
    assert len(ends) > 3
    agree(cut, [0, *(at + by for at in ends for by in (-9, 0, 1) if at + by < len(cut.raw))])


@pytest.mark.deep(stands_in="test_both_verifiers_agree")
def test_both_verifiers_agree_on_every_truncation() -> None:
    whole = _whole()
    agree(whole, range(len(whole.raw)))


def _whole() -> Sample:
    draft = smallest()
    whole = Sample(finished(draft.lines()), "cut off", draft.pinned(), [])
    assert second_verdict(whole) == _directly(whole) == Verdict(0, level="signed")
    return whole


def agree(whole: Sample, ends: Iterable[int]) -> None:
    for end in ends:
        cut = whole._replace(raw=whole.raw[:end])
        verdict = second_verdict(cut)
        assert verdict.code != 0
        assert verdict == _directly(cut), f"cut at byte {end}"


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
    assert answer["valid"] == (code == 0)
    return _verdict(answer)


def _directly(drawn: Sample) -> Verdict:
    """Like `product_verdict`, without the command around it."""
    options = CheckOptions([parse_key(key) for key in drawn.keys])
    try:
        outcome = verify_file(lambda: BytesIO(drawn.raw), "the file", options, again=True)
    except Unusable:
        return Verdict(2)
    return _verdict(outcome.to_wire())


def _verdict(answer: dict[str, Any]) -> Verdict:
    if answer["valid"]:
        return Verdict(0, level=answer["level"])
    findings = answer["findings"]
    of_entries = [found for found in findings if found["seq"] is not None]
    first = min(of_entries, key=lambda found: found["seq"]) if of_entries else findings[0]
    return Verdict(1, first["seq"], first["reason"])
