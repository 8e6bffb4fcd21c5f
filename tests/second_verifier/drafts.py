"""Writes a log as an export file, with the encoding and the tree of this package, so the product's
reader meets a writer that shares no code with it either. What a log consists of is `drawing`'s
business."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.second_verifier import encoding
from tests.second_verifier.notes import COSIGNATURE
from tests.second_verifier.signers import Signer, base64
from tests.second_verifier.tree import Tree, leaf_hash

LOG = "default"


@dataclass
class Draft:
    """A log before it is written: entries without their places, and what the file shows of it."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    openings: list[dict[str, Any]] = field(default_factory=list)
    kept: int = 0
    """The oldest entry that the log still has: those before it were purged."""

    start: int = 0
    stop: int = 0
    checkpoints: set[int] = field(default_factory=set)
    """Sizes of which the file has a checkpoint; one above `stop` comes with an inclusion proof."""

    documents: dict[int, list[bytes]] = field(default_factory=dict)
    """Documents that decisions cite, by the `seq` of the entry that they stand before."""

    signers: list[Signer] = field(default_factory=list)
    """The log's keys, the oldest first; the newest signs the second half of the checkpoints."""

    stranger: Signer | None = None
    """A key that no other endorses, and that signs instead of the newest."""

    witnesses: list[Signer] = field(default_factory=list)
    with_openings: bool = True
    times: dict[int, str] = field(default_factory=dict)
    places: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Members that a damage puts in place of what belongs there, by `seq`."""

    origins: dict[int, str] = field(default_factory=dict)
    """Origins that a damage puts in place of the right one, by the checkpoint's size."""

    frontier: list[bytes] | None = None
    """What a damage puts in place of the frontier of a part."""

    def lines(self) -> list[bytes]:
        """The file's lines, without their line feeds."""
        raws, leaves, trees = self._placed()
        head = [encoding.write(self._header())]
        if self.start:
            hashes = trees[self.start].frontier if self.frontier is None else self.frontier
            frontier = [base64(each) for each in hashes]
            head.append(encoding.write({"frontier": frontier, "size": self.start}))
        body = self._checkpoint(self.start, trees) if self.start else []
        for seq in range(self.start, self.stop):
            body += [b'{"policy":' + each + b"}" for each in self.documents.get(seq, ())]
            body += [self._entry_line(raws[seq], seq), *self._checkpoint(seq + 1, trees)]
        later = min((size for size in self.checkpoints if size > self.stop), default=0)
        if later and self.stop not in self.checkpoints and self.stop > self.start:
            path = inclusion(leaves[:later], self.stop - 1)
            body.append(encoding.write({"hashes": [base64(each) for each in path]}))
            body += self._checkpoint(later, trees)
        proven = leaves[: later or max((at for at in self._sizes() if at <= self.stop), default=0)]
        return [*head, *body, *self._purge(proven, raws), *self._erasures(leaves[:later], raws)]

    def _sizes(self) -> set[int]:
        """The sizes of the checkpoints within the file."""
        return {size for size in self.checkpoints if size > self.start or size == self.start > 0}

    def _purge(self, leaves: list[bytes], raws: list[bytes]) -> list[bytes]:
        """The `purge` entry of what precedes the oldest entry, if the file does not have it."""
        for seq, entry in enumerate(self.entries):
            size = entry["pub"].get("size") if entry.get("kind") == "purge" else None
            outside = not self.start <= seq < self.stop and self.start < self.stop
            if size == self.kept > 0 and outside and seq < len(raws):
                path = inclusion(leaves, seq) if seq < len(leaves) else None
                proof = None if path is None else [base64(each) for each in path]
                return [encoding.write({"purge": raws[seq].decode(), "proof": proof})]
        return []

    def _erasures(self, leaves: list[bytes], raws: list[bytes]) -> list[bytes]:
        """The erasures behind the file, proven in the tree of `leaves` if it covers them."""
        proves = self.stop not in self.checkpoints and self.stop > self.start
        lines = []
        for seq in range(self.stop, len(raws)) if self.with_openings else ():
            if self.entries[seq].get("kind") == "redact":
                path = inclusion(leaves, seq) if proves and seq < len(leaves) else None
                proof = None if path is None else [base64(each) for each in path]
                lines.append(encoding.write({"erasure": raws[seq].decode(), "proof": proof}))
        return lines

    def pinned(self) -> list[str]:
        """The verifier key that a reader of the file would pin: the oldest."""
        return [self.signers[0].verifier_key(LOG)]

    def witness_keys(self) -> list[str]:
        """The verifier keys of the witnesses."""
        each = enumerate(self.witnesses)
        return [key.verifier_key(f"witness-{number}", COSIGNATURE) for number, key in each]

    def origin(self, size: int) -> str:
        """The origin of a checkpoint of so many entries: the last `incarnation` entry among them
        that an operator caused says it."""
        for entry in reversed(self.entries[:size]):
            pub = entry.get("pub")
            if entry.get("kind") == "incarnation" and pub and "origin" in pub:
                return str(pub["origin"])
        return LOG

    def _placed(self) -> tuple[list[bytes], list[bytes], list[Tree]]:
        """The entries' bytes and leaves, and the tree before each entry and at the end."""
        raws: list[bytes] = []
        leaves: list[bytes] = []
        trees = [Tree()]
        for seq, entry in enumerate(self.entries):
            if entry.get("kind") == "purge" and "pub" in entry:
                said = {**purged(leaves, trees, entry["pub"]["size"]), **entry["pub"]}
                entry = {**entry, "pub": said}  # noqa: PLW2901
            prev = base64(leaves[-1]) if leaves else ""
            ts = self.times.get(seq, f"2026-01-01T00:{seq // 60:02}:{seq % 60:02}.000000Z")
            place = {"log": LOG, "seq": seq, "prev": prev, "ts": ts}
            raws.append(encoding.write({**entry, **place, **self.places.get(seq, {})}))
            leaves.append(leaf_hash(raws[-1]))
            tree = Tree(trees[-1].size, trees[-1].frontier)
            tree.append(leaves[-1])
            trees.append(tree)
        return raws, leaves, trees

    def _header(self) -> dict[str, Any]:
        keys: list[dict[str, Any]] = []
        origin = self.origin(len(self.entries))
        for number, signer in enumerate(self.signers):
            endorsement = self.signers[number - 1].endorse(signer) if number else None
            keys.append({"key": signer.verifier_key(origin), "endorsement": endorsement})
        return {
            "format": "sluice-log/1",
            "log": LOG,
            "origin": origin,
            "keys": keys,
            "first": self.kept,
            "from": self.start,
            "to": self.stop,
            "openings": "all" if self.with_openings else "none",
            **({"part": True} if self.stop < len(self.entries) else {}),
            "made_at": "2026-02-01T00:00:00.000000Z",
        }

    def _entry_line(self, raw: bytes, seq: int) -> bytes:
        if not self.with_openings:
            return b'{"entry":' + raw + b"}"
        openings = encoding.write(self.openings[seq])
        return b'{"entry":' + raw + b',"openings":' + openings + b"}"

    def _checkpoint(self, size: int, trees: list[Tree]) -> list[bytes]:
        if size not in self.checkpoints:
            return []
        newest = self.stranger or self.signers[-1]
        signer = newest if size * 2 > len(self.entries) else self.signers[0]
        origin = self.origins.get(size) or self.origin(size)
        note = signer.sign_note(origin, size, trees[size].root())
        for number, witness in enumerate(self.witnesses):
            note = witness.cosign(note, f"witness-{number}", 1_800_000_000 + size)
        return [encoding.write({"checkpoint": note})]


def purged(leaves: list[bytes], trees: list[Tree], size: int) -> dict[str, Any]:
    """What a `purge` entry says of the first `size` entries, as far as it can be computed."""
    if type(size) is not int or not 0 < size < len(trees):
        return {}
    tree = trees[size]
    return {
        "frontier": [base64(each) for each in tree.frontier],
        "last": base64(leaves[size - 1]),
        "root": base64(tree.root()),
    }


def finished(lines: list[bytes]) -> bytes:
    """The file of these lines, with a last line that fits them."""
    return b"".join(line + b"\n" for line in [*lines, end_line(lines)])


def end_line(lines: list[bytes]) -> bytes:
    """The last line for the lines before it."""
    body = b"".join(line + b"\n" for line in lines)
    entries = sum(line.startswith((b'{"entry":', b'{"damaged":')) for line in lines)
    return encoding.write({"end": True, "entries": entries, "sha256": sha256(body).hexdigest()})


def inclusion(leaves: list[bytes], index: int) -> list[bytes]:
    """RFC 9162, 2.1.3.1, word for word."""
    if len(leaves) <= 1:
        return []
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    left, right = leaves[:split], leaves[split:]
    if index < split:
        return [*inclusion(left, index), _root(right)]
    return [*inclusion(right, index - split), _root(left)]


def _root(leaves: list[bytes]) -> bytes:
    tree = Tree()
    for leaf in leaves:
        tree.append(leaf)
    return tree.root()
