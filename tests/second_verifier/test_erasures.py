"""Erasures behind the end of a part: both verifiers take a missing opening for erased only if the
file shows the `redact` entry, and that entry is in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.second_verifier.drafts import finished
from tests.second_verifier.drawing import draw
from tests.second_verifier.samples import Sample
from tests.second_verifier.test_agreement import product_verdict, second_verdict

Change = Callable[[list[bytes], int], None]


def _keep(lines: list[bytes], at: int) -> None:
    pass


def _remove(lines: list[bytes], at: int) -> None:
    del lines[at]


def _without_proof(lines: list[bytes], at: int) -> None:
    lines[at] = lines[at].partition(b',"proof":')[0] + b',"proof":null}'


def _forge(lines: list[bytes], at: int) -> None:
    lines[at] = lines[at].replace(b"key_1", b"key_2")


def _of_another_kind(lines: list[bytes], at: int) -> None:
    lines[at] = lines[at].replace(b"redact\\", b"change\\")


def _twice(lines: list[bytes], at: int) -> None:
    lines.insert(at, lines[at])


def _before_the_proof(lines: list[bytes], at: int) -> None:
    lines.insert(at - 2, lines.pop(at))


CHANGES: list[tuple[Change, str]] = [
    (_keep, ""),
    (_without_proof, ""),
    (_remove, "opening_missing"),
    (_forge, "root_mismatch"),
    (_of_another_kind, "file_malformed"),
    (_twice, "file_malformed"),
    (_before_the_proof, "root_mismatch"),
]


@pytest.mark.parametrize(
    ("change", "reason"), CHANGES, ids=lambda each: getattr(each, "__name__", "")
)
def test_only_an_erasure_of_the_log_excuses_an_opening(
    change: Change, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, keys = part_with_an_erasure()
    change(lines, len(lines) - 1)
    part = Sample(finished(lines), change.__name__, keys, [])
    verdict = second_verdict(part)
    assert (verdict.code, verdict.reason) == (int(bool(reason)), reason)
    assert product_verdict(part, tmp_path / "log", capsys) == verdict


def part_with_an_erasure() -> tuple[list[bytes], list[str]]:
    """A part that ends with one erasure, without which an opening would be missing."""
    for seed in range(1000):
        draft = draw(Random(seed))
        draft.witnesses = []
        lines = draft.lines()
        if not lines[-1].startswith(b'{"erasure":') or draft.signers[1:]:
            continue
        line = json.loads(lines[-1])
        ((first, last),) = json.loads(line["erasure"])["pub"]["events"]
        gone = [seq for seq in range(first, last + 1) if draft.start <= seq < draft.stop]
        if line["proof"] and any(draft.entries[seq]["cm"] for seq in gone):
            return lines, draft.pinned()
    raise AssertionError("no seed draws such a part")
