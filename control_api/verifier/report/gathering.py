"""Makes a report from an export that was verified: one reading selects, the next one collects the
entries and the hashes for their proofs. Verifies no entry.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO

from control_api.verifier.file.source import BrokenFile, pieces
from control_api.verifier.outcome import Unusable
from control_api.verifier.report.evidence import Evidence, Item
from control_api.verifier.report.proving import ProofMaker
from control_api.verifier.report.selection import Asked, Selection
from control_api.verifier.trusted_keys import TrustedKeys
from policies.ground.canonical import rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
from policies.trail.log_file.lines import (
    CheckpointLine,
    EndLine,
    EntryLine,
    FrontierLine,
    HeaderLine,
    Line,
    ProofLine,
)
from policies.trail.log_file.reader import BadLogFile, LogFileReader
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import VerifierKey

MOST_BYTES = 96 * 1024 * 1024
"""Of the entries and openings of a report."""

OpenFile = Callable[[], BinaryIO]


def gather(open_file: OpenFile, asked: Asked, pinned: list[VerifierKey]) -> Evidence:
    """The report. Its proofs lead to the file's newest checkpoint by a trusted key, or without
    pinned keys by a claimed one. Raises `Unusable`."""
    selection, evidence = Selection(asked), None
    keys = TrustedKeys(pinned, [])
    for line in _lines(open_file):
        match line:
            case HeaderLine():
                if asked.by == "user" and not line.with_openings:
                    raise Unusable("the export was made without openings, so it names no user")
                keys = TrustedKeys(pinned, line.keys)
                evidence = _empty(line, asked)
            case EntryLine():
                selection.see(line.entry, line.openings)
            case CheckpointLine():
                if evidence is not None and _is_signed(line.note, keys):
                    evidence.note = line.note
            case EndLine():
                if evidence is not None:
                    evidence.export |= {"entries": line.entries, "sha256": line.sha256}
    if evidence is None:
        raise Unusable("the file has no header")
    _collect(open_file, evidence, selection.seqs)
    return evidence


def _empty(header: HeaderLine, asked: Asked) -> Evidence:
    selection = {asked.by: asked.value}
    for name, at in (("from", asked.begin), ("to", asked.until)):
        if at is not None:
            selection[name] = rfc3339(at)
    export = {"from": header.first, "to": header.until, "made_at": header.made_at}
    return Evidence(header.log, header.origin, selection, export, header.keys, None)


def _is_signed(note: str, keys: TrustedKeys) -> bool:
    try:
        parsed = signed_note.parse(note)
        origin = checkpoint.parse(parsed.text).origin
        if keys.pinned:
            return keys.signer(parsed, origin) is not None
        return keys.claimed_signer(parsed, origin) is not None
    except BadNote:
        return False


def _collect(open_file: OpenFile, evidence: Evidence, seqs: set[int]) -> None:
    until: int = evidence.export["to"]
    size = 0 if evidence.note is None else checkpoint.unverified(evidence.note).size
    before, maker, digest, held = Frontier(), None, "", 0
    found: list[tuple[int, EntryLine]] = []
    seq: int = evidence.export["from"]
    for line in _lines(open_file):
        match line:
            case FrontierLine():
                before = Frontier(line.size, list(line.hashes))
            case EntryLine():
                maker = maker or ProofMaker(before, until, size, seqs)
                maker.feed(leaf_hash(line.entry))
                if seq in seqs:
                    held += len(line.entry) + len(line.openings or b"")
                    if held > MOST_BYTES:
                        raise Unusable("the report would be too large; narrow it with --from, --to")
                    found.append((seq, line))
                seq += 1
            case ProofLine():
                if maker is not None and size > until:
                    maker.tail(line.hashes)
            case EndLine():
                digest = line.sha256
    if digest != evidence.export["sha256"]:
        raise Unusable("the file was changed while it was read")
    evidence.items = [
        Item(line.entry, line.openings, None if maker is None else maker.proof(seq))
        for seq, line in found
    ]


def _lines(open_file: OpenFile) -> Iterator[Line]:
    reader = LogFileReader()
    try:
        with open_file() as file:
            for piece in pieces(file):
                yield from reader.feed(piece)
        reader.finish()
    except (BadLogFile, BrokenFile) as error:
        # It was verified a moment ago.
        raise Unusable(f"the file was changed while it was read: {error}") from error
