"""Draws logs from a seed and writes them as export files, with the encoding and the tree of this
package, so the product's reader meets a writer that shares no code with it either."""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.second_verifier import encoding
from tests.second_verifier.entry_rules import core_hash
from tests.second_verifier.notes import COSIGNATURE, ED25519, key_id_of
from tests.second_verifier.tree import Tree, leaf_hash

LOG = "default"
WORDS = ("ann@example.com", "who signs?", 'Müller \\ "x"', "\u202egpj.exe", "", "😀\n\t\x01", "7")


def base64(raw: bytes) -> str:
    """Base64 with padding."""
    return b64encode(raw).decode()


@dataclass
class Signer:
    """An Ed25519 key, made from a number."""

    private: Ed25519PrivateKey

    @classmethod
    def numbered(cls, number: int) -> Signer:
        """The same key for the same number."""
        return cls(Ed25519PrivateKey.from_private_bytes(sha256(b"key %d" % number).digest()))

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        return self.private.public_key().public_bytes_raw()

    def verifier_key(self, name: str, algorithm: int = ED25519) -> str:
        """The key in the form of C2SP `signed-note`."""
        blob = bytes([algorithm]) + self.public
        return f"{name}+{key_id_of(name, algorithm, self.public).hex()}+{base64(blob)}"

    def sign_note(self, origin: str, size: int, root: bytes) -> str:
        """A checkpoint."""
        body = f"{origin}\n{size}\n{base64(root)}\n"
        value = key_id_of(origin, ED25519, self.public) + self.private.sign(body.encode())
        return f"{body}\n\u2014 {origin} {base64(value)}\n"

    def cosign(self, note: str, name: str, seconds: int) -> str:
        """The note with this witness's cosignature."""
        body = note.rpartition("\n\n")[0] + "\n"
        signature = self.private.sign(f"cosignature/v1\ntime {seconds}\n{body}".encode())
        value = key_id_of(name, COSIGNATURE, self.public) + seconds.to_bytes(8, "big") + signature
        return f"{note}\u2014 {name} {base64(value)}\n"

    def endorse(self, to: Signer) -> dict[str, str]:
        """The statement that `to` succeeds this key."""
        statement = {"from": base64(self.public), "to": base64(to.public)}
        message = b"sluice/key-rotation/v1\0" + encoding.write(statement)
        return {**statement, "signature": base64(self.private.sign(message))}


@dataclass
class Draft:
    """A log before it is written: entries without their places, and what the file shows of it."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    openings: list[dict[str, Any]] = field(default_factory=list)
    start: int = 0
    stop: int = 0
    checkpoints: set[int] = field(default_factory=set)
    """Sizes of which the file has a checkpoint; one above `stop` comes with an inclusion proof."""

    signers: list[Signer] = field(default_factory=list)
    """The log's keys, the oldest first; the newest signs the second half of the checkpoints."""

    witnesses: list[Signer] = field(default_factory=list)
    with_openings: bool = True
    times: dict[int, str] = field(default_factory=dict)
    places: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Members that a damage puts in place of what belongs there, by `seq`."""

    def lines(self) -> list[bytes]:
        """The file's lines, without their line feeds."""
        leaves, raws = self._placed()
        trees = _trees(leaves)
        head = [encoding.write(self._header())]
        if self.start:
            frontier = [base64(each) for each in trees[self.start].frontier]
            head.append(encoding.write({"frontier": frontier, "size": self.start}))
        body = self._checkpoint(self.start, trees) if self.start else []
        for seq in range(self.start, self.stop):
            body += [self._entry_line(raws[seq], seq), *self._checkpoint(seq + 1, trees)]
        later = sorted(size for size in self.checkpoints if size > self.stop)
        if later and self.stop not in self.checkpoints and self.stop > self.start:
            path = inclusion(leaves[: later[0]], self.stop - 1)
            body.append(encoding.write({"hashes": [base64(each) for each in path]}))
            body += self._checkpoint(later[0], trees)
        return [*head, *body, *self._erasures(leaves[: later[0]] if later else [], raws)]

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

    def _placed(self) -> tuple[list[bytes], list[bytes]]:
        leaves: list[bytes] = []
        raws: list[bytes] = []
        for seq, entry in enumerate(self.entries):
            prev = base64(leaves[-1]) if leaves else ""
            ts = self.times.get(seq, f"2026-01-01T00:{seq // 60:02}:{seq % 60:02}.000000Z")
            place = {"log": LOG, "seq": seq, "prev": prev, "ts": ts}
            raws.append(encoding.write({**entry, **place, **self.places.get(seq, {})}))
            leaves.append(leaf_hash(raws[-1]))
        return leaves, raws

    def _header(self) -> dict[str, Any]:
        keys: list[dict[str, Any]] = []
        for number, signer in enumerate(self.signers):
            endorsement = self.signers[number - 1].endorse(signer) if number else None
            keys.append({"key": signer.verifier_key(LOG), "endorsement": endorsement})
        return {
            "format": "sluice-log/1",
            "log": LOG,
            "origin": LOG,
            "keys": keys,
            "first": 0,
            "from": self.start,
            "to": self.stop,
            "openings": "all" if self.with_openings else "none",
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
        signer = self.signers[-1 if size * 2 > len(self.entries) else 0]
        note = signer.sign_note(LOG, size, trees[size].root())
        for number, witness in enumerate(self.witnesses):
            note = witness.cosign(note, f"witness-{number}", 1_800_000_000 + size)
        return [encoding.write({"checkpoint": note})]


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


def _trees(leaves: list[bytes]) -> list[Tree]:
    tree, made = Tree(), [Tree()]
    for leaf in leaves:
        tree.append(leaf)
        made.append(Tree(tree.size, tree.frontier))
    return made


def draw(random: Random) -> Draft:
    """A log that holds: some entries of every kind, from several sources, some of them erased."""
    draft = Draft(signers=[Signer.numbered(each) for each in range(random.choice((1, 1, 2)))])
    for seq in range(random.randint(0, 24)):
        _append(draft, seq, random)
    size = len(draft.entries)
    if size > 2:
        _redact(draft, random)
    size = len(draft.entries)
    draft.stop = size
    draft.checkpoints = {at for at in range(1, size + 1) if random.random() < 0.15} | {size}
    if size > 4 and random.random() < 0.4:
        draft.start = random.randint(0, size // 2)
        draft.stop = random.randint(draft.start + 1, size)
        if draft.stop < size:
            draft.checkpoints -= set(range(draft.stop, size))
    draft.checkpoints -= {0}
    draft.with_openings = random.random() < 0.85
    draft.witnesses = [Signer.numbered(10 + each) for each in range(random.choice((0, 0, 1, 3)))]
    chain_sources(draft)
    return draft


def _append(draft: Draft, seq: int, random: Random) -> None:
    kind = random.choice(("decision", "decision", "lineage", "change", "gap", "heartbeat"))
    entry: dict[str, Any] = {"v": 1, "kind": kind, "eid": f"{kind}-{seq}", "masked": []}
    entry["pub"] = {"number": random.randint(-5, 5), "text": random.choice(WORDS)}
    entry["cm"], opened = {}, {}
    for path in ("query", "user_id") if kind == "decision" else ():
        value, salt = random.choice(WORDS), random.randbytes(32)
        opened[path] = [base64(salt), value]
        entry["cm"][path] = commitment(salt, path, value)
    if kind in ("decision", "lineage", "gap", "heartbeat") and random.random() < 0.6:
        entry["src"] = {"id": f"sidecar-{random.randint(1, 2)}", "inst": "i1"}
    draft.entries.append(entry)
    draft.openings.append(opened)


def _redact(draft: Draft, random: Random) -> None:
    first = random.randrange(len(draft.entries))
    last = random.randint(first, min(first + 3, len(draft.entries) - 1))
    for seq in range(first, last + 1):
        draft.openings[seq] = {}
    pub = {"by": "key_1", "reason": "request", "events": [[first, last]]}
    entry = {"v": 1, "kind": "redact", "eid": "redact-1", "masked": [], "pub": pub, "cm": {}}
    draft.entries.append(entry)
    draft.openings.append({})


def commitment(salt: bytes, path: str, value: Any) -> str:
    """The commitment to a value, in base64."""
    parts = (path.encode(), encoding.write(value))
    message = b"audit/field/v1\0" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return base64(hmac.digest(salt, message, "sha256"))


def chain_sources(draft: Draft) -> None:
    """Numbers and chains the records of each source, as its spool does."""
    last: dict[str, tuple[int, str]] = {}
    for entry in draft.entries:
        if "src" in entry:
            src = entry["src"]
            n, prev = last.get(src["id"], (-1, ""))
            src |= {"n": n + 1, "prev": prev, "t": "2026-01-01T00:00:00.000000Z"}
            last[src["id"]] = (n + 1, core_hash(entry))
