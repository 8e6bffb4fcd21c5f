"""Makes a report from an export that was verified: one reading selects, the next one collects the
entries and their inclusion proofs.

Memory is bounded by the proofs: only the nodes that they need are kept.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import BinaryIO

from deploy.commands.report.arguments import Asked, Selection
from deploy.commands.report.evidence import Evidence, Item
from deploy.commands.verify.source import BrokenFile, pieces
from policies.ground.canonical import rfc3339
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote
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
from policies.trail.proofs.signed_note import VerifierKey
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.trusted_keys import TrustedKeys


class ProofMaker:
    """Proofs for the leaves `wanted` in the tree of `size` leaves. `before` is the tree of the
    leaves before the first one that will be fed, `until` the number after the last one."""

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
        """The next leaf hash. Leaves that the tree does not have are ignored."""
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
        """The proof of the last leaf that was fed, in a tree that is larger than the file. Its
        hashes, and the nodes on its path, are all that other proofs need from beyond the file."""
        first, end, root = self._next - 1, self._next, self._last
        for part, given in zip(tree_proofs.inclusion_parts(first, self._size), hashes, strict=True):
            self._beyond[part] = given
            root = node_hash(given, root) if part.first < first else node_hash(root, given)
            first, end = min(first, part.first), max(end, part.end)
            self._beyond[Part(first, end)] = root

    def proof(self, seq: int) -> list[bytes] | None:
        """The proof of leaf `seq`, once all are fed; None if the tree does not have it. Raises
        `LookupError` if the leaves fed were not those that were announced."""
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
