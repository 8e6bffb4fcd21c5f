"""The walk: reads an export once and says what holds. Takes a file and pinned keys, and needs no
network and no secret."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import Any, BinaryIO

from tests.second_verifier import duplicates, purges
from tests.second_verifier.documents import Documents
from tests.second_verifier.entry_rules import Place, follow, read_entry
from tests.second_verifier.export_file import ExportFile, Line
from tests.second_verifier.findings import Answer, Broken, Finding
from tests.second_verifier.notes import (
    BadNote,
    Key,
    Note,
    WrongSignature,
    is_origin,
    read_note,
    trusted_keys,
)
from tests.second_verifier.openings import Ledger, check_openings
from tests.second_verifier.tree import Tree, included, leaf_hash, lefts


@dataclass(frozen=True, slots=True)
class Pins:
    """What the reader of a file got on another way."""

    keys: tuple[bytes, ...] = ()
    witnesses: tuple[Key, ...] = ()
    quorum: int = 0


def verify(file: BinaryIO, pins: Pins) -> Answer:
    """Verifies an export. Raises `NotAnExport`."""
    walk = Walk(ExportFile(file), pins)
    try:
        walk.lines()
        walk.end()
    except Broken as broken:
        walk.answer.findings.append(broken.finding)
    return walk.conclude()


class Walk:
    """One reading of one file."""

    def __init__(self, export: ExportFile, pins: Pins) -> None:
        header = export.header
        self.export, self.pins, self.answer = export, pins, Answer()
        start = header["from"]
        self.place = Place(header["log"], start, b"" if start == 0 else None, whole=start == 0)
        self.tree = Tree()
        self.keys = trusted_keys(pins.keys, header["keys"])
        self.ledger, self.ids = Ledger(), duplicates.Ids()
        self.purges = purges.Purges(header["first"])
        self.documents = Documents(restored=header["origin"] != header["log"])
        self.last_leaf, self.before_last = b"", list[bytes]()
        self.newest: Note | None = None
        self.newest_at = 0
        self._proof: list[bytes] | None = None
        self._ended_at: int | None = None
        self._larger: Note | None = None
        self._latest: Note | None = None
        self._shows_more = False
        self._next_erasure = header["to"]
        self._complete = False

    def lines(self) -> None:
        """Every line in its order. Raises `Broken`."""
        needs_frontier = self.export.header["from"] > 0
        for line in self.export.lines():
            if (line.kind == "frontier") != needs_frontier:
                raise Broken("file_malformed", "the frontier is missing, or not the second line")
            if self._ended_at is not None and line.kind not in ("entry", "damaged"):
                self._behind_end(line)
            needs_frontier = False
            self._line(line)

    def end(self) -> None:
        """What the whole file must fulfil. Raises `Broken`."""
        if self._proof is not None or self._ended_at not in (None, self.place.seq):
            raise Broken("file_malformed", "the proof is not that of the last entry")
        if self.place.seq != self.export.header["to"]:
            raise Broken("file_malformed", "other entries than the header says")
        self._complete = True

    def conclude(self) -> Answer:
        """The answer, once every line was read or the walk broke off."""
        answer, start = self.answer, self.export.header["from"]
        if self._complete:
            covered = self.newest.size if self.newest else None
            self.purges.conclude(covered)
            self._conclude_documents(covered)
            answer.findings += [
                *self.ledger.findings(),
                *self.purges.findings,
                *self.ids.findings(),
            ]
        answer.findings += self._missing_proofs()
        proven = self.newest.size if self.newest else start
        answer.entries = self.place.seq - start
        answer.unproven_tail = self.place.seq - min(max(proven, start), self.place.seq)
        return answer

    def _conclude_documents(self, covered: int | None) -> None:
        self.answer.findings += self.documents.findings(self.purges.cutoff(covered))
        self.answer.incomplete = self.documents.excused

    def _line(self, line: Line) -> None:
        if line.kind == "entry":
            self._entry(line.value, line.openings)
        elif line.kind == "policy":
            self.documents.line(line.value)
        elif line.kind == "damaged":
            raise Broken("not_an_entry", "the row holds no entry", self.place.seq)
        elif line.kind == "checkpoint":
            self._checkpoint(line.value["checkpoint"])
        elif line.kind == "frontier":
            self._frontier(line.value)
        elif line.kind == "hashes":
            self._proof = [b64decode(each) for each in line.value["hashes"]]
            self._ended_at = self.place.seq
        elif line.kind == "purge":
            self._purge(line.value)
        elif line.kind == "erasure":
            self._erasure(line.value)

    def _behind_end(self, line: Line) -> None:
        """Only a checkpoint follows the proof, and only a purge and erasures follow that."""
        due = ["checkpoint"]
        if self._proof is None:
            due = ["erasure"] if self._shows_more else ["purge", "erasure"]
        if line.kind not in due or self._ended_at != self.place.seq:
            raise Broken("file_malformed", "a line that may not stand behind the last entry")

    def _erasure(self, value: dict[str, Any]) -> None:
        """A `redact` entry of the same log, behind the end of the file."""
        entry = self._shown(value["erasure"].encode(), value["proof"], "redact", self._larger)
        if entry["seq"] < self._next_erasure:
            raise Broken("file_malformed", "an entry that is no later erasure of this log")
        self._next_erasure = entry["seq"] + 1
        self.ledger.redact(entry["pub"], entry["seq"])

    def _purge(self, value: dict[str, Any]) -> None:
        """The `purge` entry of what precedes the oldest entry."""
        proof, note = value["proof"], self._latest
        entry = self._shown(value["purge"].encode(), proof, "purge", note)
        proven = proof is not None and note is not None and note is self.newest
        self.purges.entry(entry["pub"], entry["seq"], proven)

    def _shown(self, raw: bytes, proof: Any, kind: str, note: Note | None) -> dict[str, Any]:
        """An entry of the same log from outside the file, with its proof in the note."""
        self._ended_at, self._shows_more = self.place.seq, True
        try:
            entry = read_entry(raw, self.place.seq)
        except Broken as broken:
            raise Broken("file_malformed", "what is shown is no entry") from broken
        seq = entry["seq"]
        fits = entry["kind"] == kind and entry["log"] == self.place.log
        numbers = type(seq) is int and type(entry["v"]) is int and entry["v"] == 1
        if not fits or not numbers or seq < 0:
            raise Broken("file_malformed", f"an entry that is no `{kind}` of this log")
        if proof is not None:
            path = [b64decode(each) for each in proof]
            if note is None or not included(leaf_hash(raw), seq, note.size, path, note.root):
                raise Broken("root_mismatch", f"the `{kind}` is not in the log")
        return entry

    def _entry(self, raw: bytes, openings: bytes | None) -> None:
        seq = self.place.seq
        entry, leaf = read_entry(raw, seq), leaf_hash(raw)
        follow(self.place, entry)
        if seq == self.export.header["from"]:
            self.purges.first_prev = entry["prev"]
        if openings is not None and check_openings(openings, entry["cm"], seq):
            self.ledger.missing(seq)
        if entry["kind"] == "redact":
            self.ledger.redact(entry["pub"], seq)
        if entry["kind"] == "purge":
            self.purges.entry(entry["pub"], seq)
        self.ids.add(entry["eid"], seq)
        self.documents.entry(entry)
        self.before_last = list(self.tree.frontier)
        self.tree.append(leaf)
        place, self.last_leaf = self.place, leaf
        place.seq, place.prev, place.ts = seq + 1, leaf, entry["ts"]

    def _frontier(self, value: dict[str, Any]) -> None:
        start = self.export.header["from"]
        known = [b64decode(each) for each in value["frontier"]]
        if value["size"] != start or len(known) != start.bit_count():
            raise Broken("file_malformed", "the frontier is not that of the entries before")
        self.tree = Tree(start, known)
        self.purges.begins_after(self.tree)
        if start % 2:
            self.place.prev = known[-1]  # a subtree of one leaf: the entry before the file

    def _checkpoint(self, text: Any) -> None:
        proof, self._proof = self._proof, None
        try:
            note = read_note(text)
        except (BadNote, TypeError, AttributeError):
            self._found("checkpoint_unreadable", "not in the form of a checkpoint")
            return
        if not is_origin(note.origin, self.export.header["log"]):
            self._found("checkpoint_unreadable", f"a checkpoint of `{note.origin}`")
        elif proof is None and note.size != self.tree.size:
            raise Broken("file_malformed", "a checkpoint that stands in the wrong place")
        elif not self._agrees(note, proof):
            raise Broken("root_mismatch", "the tree has another root", self._last_seq())
        else:
            self._larger = note if proof is not None else None
            self._latest = note
            if not self._is_signed(note):
                self._found("signature_missing", "not signed by a key that is trusted")

    def _agrees(self, note: Note, proof: list[bytes] | None) -> bool:
        if proof is None:
            return note.root == self.tree.root()
        index = self.place.seq - 1
        return (
            included(self.last_leaf, index, note.size, proof, note.root)
            and lefts(index, note.size, proof) == self.before_last
        )

    def _is_signed(self, note: Note) -> bool:
        try:
            # All are asked: one wrong signature by a known key is enough.
            signed = {note.signed_by(key) for key in self.keys.current}
            if True not in signed:
                return True in {note.signed_by(key) for key in self.keys.former}
            for witness in self.pins.witnesses:
                note.cosigned_by(witness)
        except WrongSignature:
            return False
        self.newest, self.newest_at = note, self._last_seq()
        return True

    def _missing_proofs(self) -> list[Finding]:
        if not self.pins.keys:
            return []
        if self.newest is None:
            return [Finding("checkpoint_missing", "no checkpoint is there to be verified")]
        self.answer.level = "signed"
        if not self.pins.witnesses:
            return []
        cosigned = sum(self.newest.cosigned_by(each) for each in self.pins.witnesses)
        if cosigned < (self.pins.quorum or len(self.pins.witnesses)):
            return [Finding("quorum_missing", f"{cosigned} cosignatures", self.newest_at)]
        self.answer.level = "witnessed"
        return []

    def _found(self, reason: str, message: str) -> None:
        """A finding about a checkpoint: its `seq` is that of the last entry before it."""
        self.answer.findings.append(Finding(reason, message, self._last_seq()))

    def _last_seq(self) -> int:
        return max(self.place.seq - 1, 0)
