"""Makes a report from an export that was verified. A first pass over the export selects the entries
that the arguments of `sluice report` ask for; a second pass collects them and makes their inclusion
proofs.

Memory is bounded: the first pass keeps only numbers of entries, the second only those nodes of the
Merkle tree that the proofs need. The only files that parsing the arguments opens are files of keys.
"""

import argparse
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from deploy.commands.report.evidence import Evidence, Item
from deploy.commands.verify.source import BrokenFile, pieces
from policies.ground.canonical import rfc3339
from policies.ground.clock import ACCEPTED, UnreadableTime, read_time
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
from policies.trail.entry import index_of
from policies.trail.log_file.file import BadLogFile, LogFileReader
from policies.trail.log_file.lines import (
    CheckpointLine,
    EndLine,
    EntryLine,
    FrontierLine,
    HeaderLine,
    Line,
    ProofLine,
)
from policies.trail.merkle_tree import Frontier, leaf_hash, node_hash
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.nodes import Node, Part, frontier_nodes
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.trusted_keys import TrustedKeys, key_argument

MOST_ENTRIES = 20_000
"""The most entries of a report: the page must stay readable, and both files are built in memory."""
_CHANGE_KINDS = frozenset({"change", "redact", "purge", "gap", "incarnation"})
"""The kinds of entries that record changes to the configuration and to the log itself. A report
includes those that happened between its decisions."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a report. `by` is `session`, `agent`, `user` or `event`, and `value` is its
    id. `begin` and `until` limit the time, in microseconds since 1970 UTC; `until` is exclusive,
    and None means no limit."""

    by: str
    value: str
    begin: int | None = None
    until: int | None = None

    def within(self, ts: int) -> bool:
        return (self.begin is None or ts >= self.begin) and (self.until is None or ts < self.until)

    def matches(self, entry: dict[str, Any], openings: bytes | None) -> bool:
        """Return whether a decision's decoded entry concerns the subject. Its time is not
        considered."""
        if self.by == "event":
            return bool(entry["eid"] == self.value)
        if self.by == "user":
            # Without its opening, nothing says whose decision it was.
            opened = orjson.loads(openings) if openings else {}
            return "user_id" in opened and opened["user_id"][1] == self.value
        return bool(entry["pub"]["request"].get(f"{self.by}_id") == self.value)


class Selection:
    """Selects the entries of a report in one pass over a log. `seqs` are the numbers of the entries
    selected so far."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.seqs: set[int] = set()
        self._events: set[str] = set()
        # Changes since the last entry selected: they count once another one follows.
        self._pending: list[int] = []

    def see(self, raw: bytes, openings: bytes | None) -> None:
        """Take in the log's next entry, and select it if it belongs to the report. The entry must
        have been verified before."""
        entry = orjson.loads(raw)
        kind, seq = entry["kind"], entry["seq"]
        if kind == "decision":
            if self._subject.matches(entry, openings) and self._subject.within(index_of(entry).ts):
                self._events.add(entry["eid"])
                self._select(seq)
        elif kind == "lineage":
            # What followed from a decision belongs to it, however late it was.
            if entry["pub"]["event"]["id"] in self._events:
                self._select(seq)
        elif kind in _CHANGE_KINDS:
            self._see_change(entry, seq)

    def _see_change(self, entry: dict[str, Any], seq: int) -> None:
        subject = self._subject
        if subject.begin is not None or subject.until is not None:
            # With a range asked for, "meanwhile" is that range.
            if subject.within(index_of(entry).ts):
                self._add(seq)
        elif entry["pub"].get("target") == subject.value:
            self._add(seq)  # the session or agent itself was changed, before or after
        elif self._events and len(self._pending) <= MOST_ENTRIES:
            # One more than the limit is enough to be refused when they count.
            self._pending.append(seq)

    def _select(self, seq: int) -> None:
        self._add(seq)
        for each in self._pending:
            self._add(each)
        self._pending.clear()

    def _add(self, seq: int) -> None:
        self.seqs.add(seq)
        if len(self.seqs) > MOST_ENTRIES:
            raise Unusable(
                f"more than {MOST_ENTRIES:,} entries belong to the report; narrow it with "
                "--from and --to"
            )


_WHAT = ("session", "agent", "user", "event")
_DESCRIPTION = """\
Writes what an export of the audit trail says of one session, agent, user or event: DIR/report.html
to read and print, and DIR/report.json with proofs, which `sluice verify` checks by itself. The
export is verified first."""
_EPILOG = """\
Exit codes: 0 written; 1 the export does not hold, nothing is written; 2 unusable arguments or
file."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sluice report", description=_DESCRIPTION, epilog=_EPILOG)
    made.add_argument("file", metavar="FILE", help="an export; gzip and zstd are recognised")
    group = made.add_mutually_exclusive_group(required=True)
    for name in _WHAT:
        group.add_argument(f"--{name}", metavar="ID", help=f"report on this {name}")
    made.add_argument(
        "--from", dest="begin", metavar="TIME",
        help=f"only from this time on: {ACCEPTED}",
    )  # fmt: skip
    made.add_argument("--to", dest="until", metavar="TIME", help="only before this time")
    made.add_argument(
        "--key", action="append", default=[], type=key_argument(ED25519), metavar="KEY",
        help="a key that signs the log, as for `sluice verify`; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "-o", "--output", required=True, metavar="DIR",
        help="the folder for report.html and report.json; made if absent",
    )  # fmt: skip
    return made


def parse(arguments: list[str], now: int) -> tuple[argparse.Namespace, Subject]:
    """Parse the arguments of `sluice report`; return the options and the subject that they name.
    `now` is in microseconds since 1970 UTC. Raises `Unusable`, and `SystemExit` as argparse
    does."""
    options = parser().parse_args(arguments)
    by = next(name for name in _WHAT if getattr(options, name) is not None)
    begin, until = _time("--from", options.begin, now), _time("--to", options.until, now)
    if begin is not None and until is not None and begin >= until:
        raise Unusable("--from is not before --to")
    if options.file == "-":
        raise Unusable("FILE is read more than once, so it can't be standard input")
    return options, Subject(by, getattr(options, by), begin, until)


def _time(option: str, text: str | None, now: int) -> int | None:
    try:
        return None if text is None else read_time(text, now)
    except UnreadableTime as error:
        raise Unusable(f"{option}: {error}") from error


class ProofMaker:
    """Makes inclusion proofs for the leaves `wanted` in a Merkle tree of `size` leaves. `before` is
    the tree of those leaves that precede the first one to be fed; `until` is one more than the
    number of the last one to be fed."""

    def __init__(self, before: Frontier, until: int, size: int, wanted: Collection[int]) -> None:
        self._until, self._size = min(until, size), size
        self._parts = {
            seq: tree_proofs.inclusion_parts(seq, size) for seq in wanted if seq < self._until
        }
        self._needed = {
            node
            for parts in self._parts.values()
            for part in parts
            if part.end <= self._until
            for node in part.nodes()
        }
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._stack = list(before.hashes)
        self._next = before.size
        self._beyond: dict[Part, bytes] = {}
        self._last = b""
        for node, root in zip(frontier_nodes(before.size), before.hashes, strict=True):
            self._keep(node, root)

    def feed(self, leaf: bytes) -> None:
        """Take in the hash of the next leaf. Leaves beyond the tree's size are ignored."""
        if self._next >= self._size:
            return
        place, level, self._last = self._next, 0, leaf
        self._keep(Node(0, place), leaf)
        # Each trailing 1 of the place completes a larger subtree, as in `Frontier.append`.
        while place & 1:
            leaf = node_hash(self._stack.pop(), leaf)
            place >>= 1
            level += 1
            self._keep(Node(level, place), leaf)
        self._stack.append(leaf)
        self._next += 1

    def tail(self, hashes: Sequence[bytes]) -> None:
        """Take in the inclusion proof of the last leaf that was fed, in a tree that extends beyond
        the file. Its hashes, and the nodes on its path, are all that the other proofs need from
        beyond the file."""
        first, end, root = self._next - 1, self._next, self._last
        for part, given in zip(tree_proofs.inclusion_parts(first, self._size), hashes, strict=True):
            self._beyond[part] = given
            root = node_hash(given, root) if part.first < first else node_hash(root, given)
            first, end = min(first, part.first), max(end, part.end)
            self._beyond[Part(first, end)] = root

    def proof(self, seq: int) -> list[bytes] | None:
        """Return the inclusion proof of leaf `seq`, once all leaves are fed; None if it was not
        asked for, or the tree does not contain it. Raises `LookupError` if other leaves were fed
        than announced."""
        parts = self._parts.get(seq)
        if parts is None:
            return None
        return [self._root(part) for part in parts]

    def _root(self, part: Part) -> bytes:
        if part.end > self._until:
            return self._beyond[part]
        return part.root(lambda level, place: self._nodes[level, place])

    def _keep(self, node: Node, root: bytes) -> None:
        if node in self._needed:
            self._nodes[node] = root


MOST_BYTES = 96 * 1024 * 1024
"""The limit on the size of a report's entries and openings together, in bytes."""

OpenFile = Callable[[], BinaryIO]


def gather(open_file: OpenFile, subject: Subject, pinned: list[VerifierKey]) -> Evidence:
    """Return the report on a subject, read from the export that `open_file` opens (twice). The
    proofs lead to the export's newest checkpoint that is signed by a key in `pinned`; if `pinned`
    is empty, by a key that the export claims. Raises `Unusable`."""
    selection, evidence = Selection(subject), None
    keys = TrustedKeys(pinned, [])
    for line in _lines(open_file):
        match line:
            case HeaderLine():
                if subject.by == "user" and not line.with_openings:
                    raise Unusable("the export was made without openings, so it names no user")
                keys = TrustedKeys(pinned, line.keys)
                evidence = _empty(line, subject)
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


def _empty(header: HeaderLine, subject: Subject) -> Evidence:
    selection = {subject.by: subject.value}
    for name, at in (("from", subject.begin), ("to", subject.until)):
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
