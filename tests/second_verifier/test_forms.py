"""Lines that are JSON but have another form than the format's, on which both verifiers agree: a
header that contradicts itself, or calls the file a part in another way, an entry or openings that
are no object, an erasure that is no entry, and lines that are too long."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deploy.commands.verify.__main__ import main
from tests.second_verifier.drafts import finished
from tests.second_verifier.drawing import draw
from tests.second_verifier.samples import Sample
from tests.second_verifier.test_agreement import Verdict, product_verdict, second_verdict
from tests.second_verifier.test_erasures import part_with_an_erasure

Capture = pytest.CaptureFixture[str]
NO_OBJECT = [b"[]", b'["a"]', b'"text"', b"5", b"null", b"true"]
LONG = 1024 * 1024


@pytest.mark.parametrize("entry", NO_OBJECT, ids=bytes.decode)
def test_an_entry_that_is_no_object_has_the_wrong_members(
    entry: bytes, tmp_path: Path, capsys: Capture
) -> None:
    lines, keys = _lines()
    at = _entries(lines)[2]
    lines[at] = b'{"entry":%b,"openings":{}}' % entry
    _agree(lines, keys, Verdict(1, 2, "wrong_members", "unsigned"), tmp_path, capsys)
    lines[at] = b'{"entry": %b,"openings":{}}' % entry
    _agree(lines, keys, Verdict(1, 2, "not_canonical", "unsigned"), tmp_path, capsys)


@pytest.mark.parametrize("openings", NO_OBJECT, ids=bytes.decode)
def test_openings_that_are_no_object_open_nothing(
    openings: bytes, tmp_path: Path, capsys: Capture
) -> None:
    lines, keys = _lines()
    for seq, at in enumerate(_entries(lines)[:6]):
        changed = list(lines)
        changed[at] = lines[at].rpartition(b',"openings":')[0] + b',"openings":%b}' % openings
        expected = Verdict(1, seq, "opening_mismatch", "unsigned")
        _agree(changed, keys, expected, tmp_path, capsys)


@pytest.mark.parametrize("text", [*map(bytes.decode, NO_OBJECT), "", "{", '{"seq":1}'])
def test_a_finding_about_an_erasure_has_no_seq(text: str, tmp_path: Path, capsys: Capture) -> None:
    lines, keys = part_with_an_erasure()
    line = json.loads(lines[-1])
    lines[-1] = _canonical({**line, "erasure": text})
    _agree(lines, keys, Verdict(1, None, "file_malformed"), tmp_path, capsys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": 3, "from": 2}, "`from` is 2, though the oldest entry kept, `first`, is 3"),
        ({"from": 7, "to": 6}, "`from` is 7, larger than `to`, which is 6"),
        ({"origin": "another"}, "`origin` is `another`, which is not one of log `default`"),
        ({"origin": "default#0"}, "`origin` is `default#0`, which is not one of log `default`"),
    ],
    ids=["first", "to", "origin", "incarnation"],
)
def test_a_header_that_contradicts_itself_is_reported_as_such(
    change: dict[str, Any], message: str, tmp_path: Path, capsys: Capture
) -> None:
    lines, keys = _lines()
    lines[0] = json.dumps({**json.loads(lines[0]), **change}, separators=(",", ":")).encode()
    answer = _agree(lines, keys, Verdict(2), tmp_path, capsys)
    assert f"the header contradicts itself: {message}" in answer


@pytest.mark.parametrize("said", ["false", "null", "1", '"true"', "[]", "12"])
def test_a_header_marks_a_part_in_one_form_only(said: str, tmp_path: Path, capsys: Capture) -> None:
    lines, keys = _lines()
    for value, code in ((b"true", 0), (said.encode(), 2)):
        lines[0] = lines[0].partition(b',"part":')[0].removesuffix(b"}") + b',"part":%b}' % value
        sample = Sample(finished(lines), "part", keys, [])
        assert second_verdict(sample).code == code
        assert product_verdict(sample, tmp_path / "log", capsys).code == code


@pytest.mark.parametrize(("length", "code"), [(LONG, 0), (LONG + 1, 2)])
def test_a_header_has_a_limit(length: int, code: int, tmp_path: Path, capsys: Capture) -> None:
    lines, _ = _lines()
    lines[0] = lines[0][:-1] + b',"more":"%b"}' % (b"x" * (length - len(lines[0]) - 10))
    assert len(lines[0]) == length
    sample = Sample(finished(lines), "long", [], [])
    assert second_verdict(sample).code == code
    verdict = product_verdict(sample, tmp_path / "log", capsys)
    assert verdict.code == code


def test_a_line_that_is_no_entry_has_a_limit(tmp_path: Path, capsys: Capture) -> None:
    lines, keys = _lines()
    lines.insert(_entries(lines)[2], b'{"checkpoint":"%b"}' % (b"x" * LONG))
    _agree(lines, keys, Verdict(1, None, "file_malformed"), tmp_path, capsys)


def test_a_damaged_row_may_exceed_the_limit(tmp_path: Path, capsys: Capture) -> None:
    lines, keys = _lines()
    for row, reason, seq in (
        (b'"%b"' % (b"A" * (LONG + 4)), "not_an_entry", 2),
        (b'["%b"]' % (b"A" * (LONG + 4)), "file_malformed", None),
    ):
        changed = list(lines)
        changed[_entries(lines)[2]] = b'{"damaged":{"entry":%b,"openings":null,"seq":2}}' % row
        _agree(changed, keys, Verdict(1, seq, reason), tmp_path, capsys)


def _agree(
    lines: list[bytes], keys: list[str], expected: Verdict, tmp_path: Path, capsys: Capture
) -> str:
    """Both verifiers say `expected`, whatever the level. Returns what the product prints."""
    sample = Sample(finished(lines), "another form", keys, [])
    said = second_verdict(sample)
    assert said[:3] == expected[:3]
    assert product_verdict(sample, tmp_path / "log", capsys) == said
    main([str(tmp_path / "log")])
    return "".join(capsys.readouterr())


def _lines() -> tuple[list[bytes], list[str]]:
    """A log from its first entry, with openings and at least eight entries."""
    for seed in range(1000):
        draft = draw(Random(seed))
        if draft.start == 0 and draft.stop >= 8 and draft.with_openings:
            return draft.lines(), []
    raise AssertionError("no seed draws such a log")


def _entries(lines: list[bytes]) -> list[int]:
    return [at for at, line in enumerate(lines) if line.startswith(b'{"entry":')]


def _canonical(line: dict[str, Any]) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
