"""Both verifiers say the same of the documents that decisions cite: which are missing, which
nothing cites, and whether the log excuses one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from deploy.commands.verify.check import CheckOptions, verify_file
from policies.trail.verdict.outcome import Outcome, Unusable
from policies.trail.verdict.trusted_keys import parse_key
from tests.second_verifier import edits
from tests.second_verifier.documents import Documents
from tests.second_verifier.drafts import Draft, finished
from tests.second_verifier.drawing import draw
from tests.second_verifier.findings import NotAnExport
from tests.second_verifier.notes import read_key
from tests.second_verifier.samples import sample
from tests.second_verifier.verifier import Pins, verify

VECTORS = Path(__file__).parents[1] / "vectors"
REASONS = ("document_missing", "document_mismatch")
FILES, FEW = 400, 24
EDITS = (
    edits.leave_a_document_out,
    edits.change_a_document,
    edits.add_a_document,
    edits.move_a_document,
)


class Said(NamedTuple):
    """What a verifier says of a file's documents: findings as `(reason, seq)`, in order, and
    the exit code that follows."""

    found: list[tuple[str, int | None]]
    code: int


def second(raw: bytes, keys: list[str]) -> Said:
    pins = Pins(tuple(read_key(each).public for each in keys))
    try:
        answer = verify(BytesIO(raw), pins)
    except NotAnExport:
        return Said([], 2)
    return said(((each.reason, each.seq) for each in answer.findings), answer.incomplete)


def product(raw: bytes, keys: list[str]) -> Said:
    try:
        outcome = derived(raw, keys)
    except Unusable:
        return Said([], 2)
    found = ((str(each.reason), each.seq) for each in outcome.findings)
    # Which facts a restore made unknown is said by who derives decisions.
    documents = [each for each in outcome.not_derived if not each.why.endswith(" their facts")]
    return said(found, bool(documents))


def said(findings: Iterable[tuple[str, int | None]], incomplete: bool) -> Said:
    found = sorted((each for each in findings if each[0] in REASONS), key=str)
    return Said(found, 1 if found else 2 if incomplete else 0)


def derived(raw: bytes, keys: list[str]) -> Outcome:
    """What the product says of a file. Raises `Unusable`."""
    options = CheckOptions([parse_key(each) for each in keys], recompute=True)
    return verify_file(lambda: BytesIO(raw), "the file", options, again=True)


def drawn(number: int) -> tuple[Draft, list[bytes], list[str]]:
    """A log that holds, the lines of its file with what was done to its documents, and keys."""
    random = Random(number)
    draft = draw(random)
    while not draft.documents:
        draft = draw(random)
    lines = draft.lines()
    for _ in range(random.choice((0, 1, 1, 2))):
        random.choice(EDITS)(lines, random)
    return draft, lines, draft.pinned() if random.random() < 0.8 else []


def agree(numbers: range) -> list[Said]:
    told = []
    for number in numbers:
        _, lines, keys = drawn(number)
        raw = finished(lines)
        told.append(second(raw, keys))
        assert told[-1] == product(raw, keys), f"file {number}"
    return told


def test_both_verifiers_agree_on_the_documents_of_a_few_files() -> None:
    told = agree(range(FEW))
    assert {reason for each in told for reason, _ in each.found} == set(REASONS)
    assert {each.code for each in told} == {0, 1, 2}


@pytest.mark.deep(stands_in="test_both_verifiers_agree_on_the_documents_of_a_few_files")
def test_both_verifiers_agree_on_the_documents_of_many_files() -> None:
    agree(range(FEW, FILES))
    for number in range(FILES):
        raw, _, keys, _ = sample(number)
        assert second(raw, keys) == product(raw, keys), f"damaged file {number}"


def test_generated_decisions_can_be_derived() -> None:
    """Else the product would tell of other things than of documents."""
    for number in range(FEW):
        draft = draw(Random(number))
        if draft.documents:
            outcome = derived(finished(draft.lines()), draft.pinned())
            assert outcome.valid, (number, outcome.findings)


def test_the_second_verifier_finds_what_the_golden_decisions_cite() -> None:
    golden = json.loads((VECTORS / "cited.json").read_bytes())
    bodies = [each.encode() for each in golden["documents"]]
    entries = [
        {"kind": "decision", "seq": seq, "pub": each["pub"]}
        for seq, each in enumerate(golden["decisions"])
    ]
    for left_out in (None, *bodies):
        documents = Documents(restored=False)
        for body in bodies:
            if body != left_out:
                documents.line(body)
        for entry in entries:
            documents.entry(entry)
        found = [(each.reason, each.seq) for each in documents.findings(None)]
        first = {None: [], bodies[0]: [0], bodies[1]: [4], bodies[2]: [1]}[left_out]
        assert found == [("document_missing", seq) for seq in first]


@pytest.mark.parametrize(
    ("pub", "excused"),
    [
        ({"what": "policy.updated"}, True),
        ({"what": "agent.updated"}, False),
        ({"what": "policy.updated", "before_sha256": None}, False),
    ],
)
def test_a_change_by_a_version_that_kept_no_documents_excuses_a_missing_one(
    pub: dict[str, object], excused: bool
) -> None:
    for day, within in ((1, True), (2, True), (4, False)):
        documents = Documents(restored=False)
        times = f"2026-01-0{day}T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"
        decision = {"kind": "decision", "seq": 3, "ts": times[0], "pub": {"facts": {"role": "ab"}}}
        documents.entry(decision)
        documents.entry({"kind": "change", "seq": 4, "ts": times[1], "pub": pub})
        found = [each.reason for each in documents.findings(None)]
        assert (found, documents.excused) == (
            ([], True) if excused and within else (["document_missing"], False)
        )
