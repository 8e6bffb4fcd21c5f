"""The export file: what is written is read again, and nothing else is."""

import hashlib
import json
from typing import Any

import orjson
import pytest

from policies.ground.canonical import b64, encode, unb64
from policies.trail.findings import Reason
from policies.trail.log_file.coding import BadLine, encode_line, parse_line
from policies.trail.log_file.file import BadLogFile, LogFileReader, LogFileWriter
from policies.trail.log_file.lines import (
    MAX_LINE,
    CheckpointLine,
    DamagedLine,
    EndLine,
    EntryLine,
    ErasureLine,
    FrontierLine,
    HeaderLine,
    Line,
    PolicyLine,
    ProofLine,
    TruncatedLine,
)
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import tree_proofs
from tests.policies.test_vectors import vector
from tests.policies.trail.small_log import ROWS, SIZE
from tests.policies.world import naive_root

MADE = "2026-01-01T00:00:00.000000Z"
KEYS: list[dict[str, Any]] = [{"key": "default+00000000+AAAA", "endorsement": None}]
HEADER = HeaderLine("default", "default", KEYS, 0, 0, SIZE, True, MADE)
ENTRIES = [EntryLine(row.entry, row.openings or b"{}") for row in ROWS]
PART = HEADER._replace(first=3)
FRONTIER = FrontierLine(3, [b"a" * 32, b"b" * 32])
NOTE = CheckpointLine("default\n3\nAAAA\n\n— default AAAA\n")
PROOF = ProofLine([b"c" * 32])
ERASURE = ErasureLine('{"kind":"redact"}', [b"d" * 32])
ALL: list[Line] = [
    HEADER,
    FRONTIER,
    *ENTRIES[:2],
    DamagedLine(7, b"\n\xff", None),
    PolicyLine(b'{"role":"analyst"}'),
    NOTE,
    PROOF,
    ERASURE,
    ERASURE._replace(proof=None),
    EndLine(8, "0" * 64),
    TruncatedLine("the service stopped"),
]


def written(*lines: Line) -> bytes:
    """A whole file of these lines, with its end."""
    file = LogFileWriter()
    parts = [
        file.joined(encode_line(line), 1)
        if isinstance(line, EntryLine | DamagedLine)
        else file.line(line)
        for line in lines
    ]
    return b"".join(parts) + file.end()


WHOLE = written(HEADER, *ENTRIES, NOTE)


def read(raw: bytes, step: int = 1 << 20) -> list[Line]:
    reader = LogFileReader()
    lines = [line for at in range(0, len(raw), step) for line in reader.feed(raw[at : at + step])]
    reader.finish()
    return lines


def fault(raw: bytes) -> Reason | None:
    with pytest.raises(BadLogFile) as refused:
        read(raw)
    return refused.value.reason


@pytest.mark.parametrize("line", ALL, ids=lambda line: type(line).__name__)
def test_a_line_is_read_as_it_was_written(line: Line) -> None:
    raw = encode_line(line)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert parse_line(raw[:-1]) == line


@pytest.mark.parametrize("step", [1, 7, 100, 4096, 1 << 20])
def test_a_file_is_read_in_pieces_of_any_size(step: int) -> None:
    lines = read(WHOLE, step)
    assert lines[:-1] == [HEADER, *ENTRIES, NOTE]
    assert isinstance(lines[-1], EndLine)
    assert lines[-1].entries == SIZE


def test_the_last_line_hashes_every_byte_before_it() -> None:
    before, _, last = WHOLE[:-1].rpartition(b"\n")
    assert orjson.loads(last) == {
        "end": True,
        "entries": SIZE,
        "sha256": hashlib.sha256(before + b"\n").hexdigest(),
    }


def test_every_truncation_is_noticed() -> None:
    for length in range(len(WHOLE)):
        expected = Reason.FILE_TRUNCATED if b"\n" in WHOLE[:length] else None
        assert fault(WHOLE[:length]) == expected, length


def test_the_lines_before_a_fault_are_still_returned() -> None:
    raw = WHOLE.replace(encode_line(NOTE), b'{"note":1}\n')
    lines = LogFileReader().feed(raw)
    assert [next(lines) for _ in range(SIZE + 1)] == [HEADER, *ENTRIES]
    with pytest.raises(BadLogFile) as refused:
        next(lines)
    assert (refused.value.reason, refused.value.line) == (Reason.FILE_MALFORMED, SIZE + 2)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", None),
        (b"hello\n", None),
        (WHOLE.replace(b"sluice-log/1", b"sluice-log/2"), None),
        (encode_line(ENTRIES[0]) + WHOLE, None),
        (WHOLE + b"\n", Reason.FILE_MALFORMED),
        (WHOLE + b"x", Reason.FILE_TRUNCATED),
        (WHOLE + encode_line(ENTRIES[0]), Reason.FILE_MALFORMED),
        (WHOLE.replace(b'"entries":%d' % SIZE, b'"entries":99'), Reason.FILE_DIGEST_MISMATCH),
        (WHOLE.replace(b"ann@example.com", b"eve@example.com"), Reason.FILE_DIGEST_MISMATCH),
        (written(HEADER, HEADER), Reason.FILE_MALFORMED),
        (written(HEADER, *ENTRIES, PROOF), Reason.FILE_MALFORMED),
        (written(HEADER, *ENTRIES, PROOF, NOTE, ENTRIES[0]), Reason.FILE_MALFORMED),
        (written(HEADER, *ENTRIES, PROOF, ERASURE), Reason.FILE_MALFORMED),
        (written(HEADER, *ENTRIES, ERASURE, ENTRIES[0]), Reason.FILE_MALFORMED),
        (written(HEADER, *ENTRIES, ERASURE, PROOF, NOTE), Reason.FILE_MALFORMED),
        (written(HEADER, FRONTIER, ENTRIES[3]), Reason.FILE_MALFORMED),
        (written(PART, ENTRIES[3]), Reason.FILE_MALFORMED),
        (written(PART), Reason.FILE_MALFORMED),
        (written(PART, FRONTIER._replace(size=4), ENTRIES[3]), Reason.FILE_MALFORMED),
        (written(HEADER, *ENTRIES, TruncatedLine("stopped")), Reason.FILE_TRUNCATED),
    ],
)
def test_a_file_of_another_form_is_refused(raw: bytes, expected: Reason | None) -> None:
    assert fault(raw) == expected


def test_a_part_begins_with_its_frontier_and_ends_with_a_proof() -> None:
    lines: list[Line] = [PART, FRONTIER, NOTE, *ENTRIES[3:], PROOF, NOTE, ERASURE, ERASURE]
    assert read(written(*lines))[:-1] == lines


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b'{"entry":{}}',
        b'{"policy":',
        b'{"hashes":["AAAA"]}',
        b'{"hashes":[], "more":1}',
        b'{"hashes":[] }',
        b'{"checkpoint":1}',
        b'{"end":true,"entries":true,"sha256":""}',
        b'{"end":true,"entries":-1,"sha256":""}',
        b'{"damaged":{"entry":"?","openings":null,"seq":1}}',
        b'{"frontier":[],"size":"0"}',
        b'{"erasure":{},"proof":null}',
        b'{"erasure":""}',
        b'{"erasure":"","proof":["AAAA"]}',
    ],
)
def test_a_line_of_another_form_is_refused(raw: bytes) -> None:
    with pytest.raises(BadLine):
        parse_line(raw)


@pytest.mark.parametrize(
    "change",
    [
        {"from": -1},
        {"from": 2, "to": 1},
        {"first": 1},
        {"openings": "some"},
        {"made_at": "today"},
        {"keys": [1]},
        {"log": None},
        {"to": True},
    ],
)
def test_a_header_is_checked(change: dict[str, Any]) -> None:
    raw = encode({**orjson.loads(encode_line(HEADER)), **change})
    with pytest.raises(BadLine):
        parse_line(raw)


def test_later_versions_may_add_to_the_header() -> None:
    raw = encode({**orjson.loads(encode_line(HEADER)), "made_by": "a later version"})
    assert parse_line(raw) == HEADER


@pytest.mark.parametrize(
    ("entry", "openings"),
    [
        (b'{"pub":{"x":{},"openings":{"a":1}}}', b'{"user_id":["s","v"]}'),
        (b'{"pub":{"x":1,"openings":{}}}', b'{"openings":["s","v"]}'),
        (b'{"pub":{"x":1,"openings":{}}}', b"{}"),
        (b'{"pub":{"x":1,"openings":{}}}', None),
        (b'{"pub":"\xff\x00 not JSON', b'{"user_id":["s","v"]}'),
        (b'{"pub":1}', b"not JSON"),
    ],
)
def test_an_entry_and_its_openings_can_be_read_in_one_way_only(
    entry: bytes, openings: bytes | None
) -> None:
    line = EntryLine(entry, openings)
    assert parse_line(encode_line(line)[:-1], openings is not None) == line


def test_a_file_may_be_made_without_openings() -> None:
    lines = [EntryLine(each.entry, None) for each in ENTRIES]
    header = HEADER._replace(with_openings=False)
    assert read(written(header, *lines))[:-1] == [header, *lines]


def test_a_line_has_a_limit() -> None:
    reader = LogFileReader()
    list(reader.feed(encode_line(HEADER) + b"x" * MAX_LINE))
    with pytest.raises(BadLogFile) as refused:
        list(reader.feed(b"x"))
    assert refused.value.reason == Reason.FILE_MALFORMED


def test_a_hash_in_a_file_is_base64() -> None:
    assert b64(FRONTIER.hashes[0]).encode() in encode_line(FRONTIER)


@pytest.mark.parametrize("name", ["whole", "part"])
def test_the_golden_files_are_written_with_the_same_bytes(name: str) -> None:
    raw = vector("log_file")[name].encode()
    lines = read(raw)
    assert written(*lines[:-1]) == raw
    # Once more without the code under test.
    *body, last = [json.loads(line) for line in raw.splitlines()]
    before = raw[: raw.rindex(b'{"end"')]
    assert last["sha256"] == hashlib.sha256(before).hexdigest()
    assert last["entries"] == sum("entry" in line for line in body)
    entries = [line["entry"] for line in body if "entry" in line]
    golden = [orjson.loads(each["utf8"]) for each in vector("log")["entries"]]
    assert entries == golden[body[0]["from"] : body[0]["to"]]
    cited = {each["pub"]["facts"]["role"] for each in entries if each["pub"].get("facts")}
    documents = [line.document for line in lines if isinstance(line, PolicyLine)]
    assert cited == {hashlib.sha256(each).hexdigest() for each in documents}


def test_the_golden_part_leads_to_the_signed_root() -> None:
    lines = read(vector("log_file")["part"].encode())
    header, frontier, proof, note = lines[0], lines[1], lines[-3], lines[-2]
    assert isinstance(header, HeaderLine)
    assert isinstance(frontier, FrontierLine)
    assert isinstance(proof, ProofLine)
    assert isinstance(note, CheckpointLine)
    root = unb64(note.note.split("\n")[2])
    leaves = [bytes.fromhex(each["leaf"]) for each in vector("log")["entries"]]
    assert naive_root(leaves) == root
    assert naive_root(leaves[: header.first]) == Frontier(frontier.size, frontier.hashes).root()
    last = header.until - 1
    assert tree_proofs.proves_inclusion(leaves[last], last, len(leaves), proof.hashes, root)
