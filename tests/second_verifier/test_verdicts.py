"""The second verifier against the golden vectors, and against damage whose finding is certain."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from random import Random

import pytest

from tests.second_verifier import edits, encoding
from tests.second_verifier.__main__ import main
from tests.second_verifier.drafts import Draft, end_line
from tests.second_verifier.drawing import draw
from tests.second_verifier.entry_rules import core_hash
from tests.second_verifier.findings import Answer
from tests.second_verifier.notes import read_key, read_note
from tests.second_verifier.openings import check_openings
from tests.second_verifier.tree import Tree, leaf_hash
from tests.second_verifier.verifier import Pins, verify

VECTORS = Path(__file__).parents[1] / "vectors"

CERTAIN: dict[edits.Edit, str] = {
    edits.add_white_space: "not_canonical",
    edits.write_a_key_twice: "not_canonical",
    edits.write_half_a_surrogate: "not_an_entry",
    edits.write_no_utf8: "not_an_entry",
    edits.write_a_wide_integer: "not_an_entry",
    edits.write_a_float: "outside_profile",
    edits.write_an_upper_case_key: "outside_profile",
    edits.write_too_much: "too_large",
    edits.delete_the_oldest: "entries_missing",
    edits.delete_the_newest: "file_malformed",
    edits.change_a_text: "chain_broken",
}


def test_the_second_verifier_computes_the_golden_vectors() -> None:
    log = json.loads((VECTORS / "log.json").read_bytes())
    tree = Tree()
    for seq, golden in enumerate(log["entries"]):
        raw = golden["utf8"].encode()
        entry = encoding.read(raw)
        assert encoding.write(entry) == raw
        assert leaf_hash(raw).hex() == golden["leaf"]
        openings = json.dumps(golden["openings"], ensure_ascii=False).encode()
        assert check_openings(openings, entry["cm"], seq) == []
        tree.append(leaf_hash(raw))
    assert tree.root().hex() == log["root"]


def test_the_second_verifier_chains_the_records_of_a_source() -> None:
    log = json.loads((VECTORS / "log.json").read_bytes())
    third, fourth = (encoding.read(log["entries"][at]["utf8"].encode()) for at in (3, 4))
    assert fourth["src"]["prev"] == core_hash(third)


def test_the_second_verifier_verifies_the_golden_checkpoint() -> None:
    golden = json.loads((VECTORS / "checkpoint.json").read_bytes())
    note = read_note(golden["note"])
    assert (note.origin, note.size, note.root.hex()) == (
        golden["origin"],
        golden["size"],
        golden["root"],
    )
    assert note.signatures[0][1][:4].hex() == golden["key_id"]


@pytest.mark.parametrize("edit", CERTAIN, ids=lambda edit: edit.__name__)
def test_damage_has_its_reason(edit: edits.Edit) -> None:
    draft = _whole_log()
    lines = draft.lines()
    assert _answer(lines, draft).valid
    edit(lines, Random(1))
    found = _answer(lines, draft).findings
    assert found
    assert found[0].reason == CERTAIN[edit]


def test_a_key_that_endorses_the_pinned_one_proves_nothing() -> None:
    draft = _whole_log()
    draft.checkpoints, draft.signers = {1}, draft.signers[:1]
    draft.signers.append(type(draft.signers[0]).numbered(66))
    pins = Pins((draft.signers[1].public,))  # the note of size 1 is signed by the first key
    found = verify(_file(draft.lines()), pins).findings
    assert [each.reason for each in found] == ["checkpoint_missing"]


def test_the_command_prints_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft, path = _whole_log(), tmp_path / "log.jsonl"
    path.write_bytes(_file(draft.lines()).getvalue())
    assert main([str(path), *draft.pinned()]) == 0
    assert json.loads(capsys.readouterr().out)["level"] == "signed"
    path.write_bytes(b"hello\n")
    assert main([str(path)]) == 2


def _whole_log() -> Draft:
    """A log of at least eight entries with one checkpoint, at its end."""
    for seed in range(1000):
        draft = draw(Random(seed))
        if draft.start == 0 and draft.stop == len(draft.entries) >= 8 and draft.with_openings:
            draft.checkpoints = {draft.stop}
            return draft
    raise AssertionError("no seed draws such a log")


def _file(lines: list[bytes]) -> BytesIO:
    return BytesIO(b"".join(line + b"\n" for line in [*lines, end_line(lines)]))


def _answer(lines: list[bytes], draft: Draft) -> Answer:
    witnesses = tuple(read_key(key) for key in draft.witness_keys())
    return verify(_file(lines), Pins((draft.signers[0].public,), witnesses))
