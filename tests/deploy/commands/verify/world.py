"""Exports of small logs with checkpoints, and the verifier's command run on them."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from control_api.log.database_verifier.__main__ import main as database_main
from deploy.commands.verify.__main__ import main
from policies.ground.signing import Endorsement, Signer
from policies.sets.policy_set import role_document
from policies.trail import checkpoint
from policies.trail.checkpoint import Checkpoint
from policies.trail.entry import StoredRow
from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.file import LogFileWriter
from policies.trail.log_file.lines import (
    CheckpointLine,
    EntryLine,
    ErasureLine,
    FrontierLine,
    HeaderLine,
    PolicyLine,
    ProofLine,
)
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey
from policies.trail.removal import Purged
from tests.policies.trail.walk.world import mixed_log, tree_of
from tests.policies.world import LOG, POLICY, START

SIGNER = Signer(bytes(range(32)))
WITNESS = Signer(bytes(range(1, 33)))
KEY = VerifierKey(LOG, ED25519, SIGNER.public).text()
WITNESS_KEY = VerifierKey("witness.example", COSIGNATURE, WITNESS.public).text()
ROWS = mixed_log().rows
SIZE = len(ROWS)
DOCUMENT = role_document([POLICY]) or b""
MADE_AT = "2026-01-01T00:30:00.000000Z"


@dataclass
class Answer:
    """The verifier's exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.json["findings"]]


def run(
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    program: Callable[[list[str]], int] = main,
) -> Answer:
    try:
        code = program(list(arguments))
    except SystemExit as error:
        code = int(str(error.code))
    captured = capsys.readouterr()
    return Answer(code, captured.out, captured.err)


def run_on_database(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> Answer:
    """The program that `sluice verify --database` becomes."""
    return run(capsys, "--database", url, *arguments, program=database_main)


def note(size: int, rows: Sequence[StoredRow] = ROWS, *, signer: Signer = SIGNER) -> str:
    return checkpoint.sign(Checkpoint(LOG, size, tree_of(rows[:size]).root()), signer)


def witnessed(text: str, at: int = 1_767_225_600) -> str:
    parsed = signed_note.parse(text)
    line = signed_note.cosign(parsed.text, "witness.example", WITNESS, at)
    return parsed._replace(signatures=(*parsed.signatures, line)).render()


def export(
    rows: Sequence[StoredRow] = ROWS,
    *,
    first: int = 0,
    notes: dict[int, str] | None = None,
    openings: bool = True,
    keys: list[dict[str, Any]] | None = None,
    origin: str = LOG,
    until: int | None = None,
    tail: str | None = None,
    tree: Frontier | None = None,
    whole: Sequence[StoredRow] = ROWS,
    erasures: Sequence[ErasureLine] = (),
    made_at: str = MADE_AT,
    oldest: int = 0,
    part: bool = False,
) -> bytes:
    """A whole file of the rows, the first of which is number `first`. `notes` by size; None is one
    at the end. `tail` is a note on a larger log of the rows `whole`.
    `oldest` is the first entry that the log still has; `part` says that an end was asked for."""
    until = first + len(rows) if until is None else until
    if notes is None:
        notes = {} if tail else {until: note(until)}
    writer, file = LogFileWriter(), io.BytesIO()
    keys = [{"key": KEY, "endorsement": None}] if keys is None else keys
    header = HeaderLine(LOG, origin, keys, oldest, first, until, openings, made_at, part)
    file.write(writer.line(header))
    if first:
        tree = tree_of(ROWS[:first]) if tree is None else tree
        file.write(writer.line(FrontierLine(first, tree.hashes)))
    digest = sha256(DOCUMENT).hexdigest().encode()
    if any(digest in row.entry for row in rows):
        file.write(writer.line(PolicyLine(DOCUMENT)))
    for place, row in enumerate(rows, first):
        if place in notes and place > first:
            file.write(writer.line(CheckpointLine(notes[place])))
        line = EntryLine(row.entry, row.openings if openings else None)
        file.write(writer.joined(encode_line(line), 1))
    if first + len(rows) in notes:
        file.write(writer.line(CheckpointLine(notes[first + len(rows)])))
    if tail is not None:
        size = checkpoint.parse(signed_note.parse(tail).text).size
        hashes = tree_proofs.inclusion_proof(first + len(rows) - 1, size, node_of(whole))
        file.write(writer.line(ProofLine(hashes)))
        file.write(writer.line(CheckpointLine(tail)))
    for erasure in erasures:
        file.write(writer.line(erasure))
    file.write(writer.end())
    return file.getvalue()


def node_of(rows: Sequence[StoredRow]) -> Any:
    def node(level: int, place: int) -> bytes:
        part = Frontier()
        for row in rows[place << level : (place + 1) << level]:
            assert row.hash is not None
            part.append(row.hash)
        return part.root()

    return node


def purged_rows(size: int) -> list[StoredRow]:
    """The log, and then the `purge` entry of its first `size` entries."""
    log, tree = mixed_log(), tree_of(ROWS[:size])
    last = ROWS[size - 1].hash
    assert last is not None
    log.direct(Purged(size, tree.root(), tree.to_bytes(), last, START, size).record("purge"))
    return log.rows


def put(folder: Path, content: bytes, name: str = "log.jsonl") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def rotated_keys() -> tuple[Signer, list[dict[str, Any]]]:
    """A successor of `SIGNER`, and the keys of a file that both signed."""
    successor = Signer(bytes(range(2, 34)))
    endorsement = Endorsement.by(SIGNER, successor.public).to_wire()
    key = VerifierKey(LOG, ED25519, successor.public).text()
    return successor, [
        {"key": KEY, "endorsement": None},
        {"key": key, "endorsement": endorsement},
    ]
