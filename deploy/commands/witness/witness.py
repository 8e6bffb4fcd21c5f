"""Decides whether a checkpoint is cosigned (C2SP `tlog-witness`, `add-checkpoint`), and stores the
checkpoint that was cosigned last for each log.

INVARIANT: of each log, every checkpoint that was ever cosigned is a prefix of the next one. A
cosignature leaves this process only once the checkpoint is on disk.

The body of a request:

    old <size>
    <base64 hash>
    …

    <the checkpoint, a signed note>

A stored file is the cosigned checkpoint itself. It is replaced atomically, and is durable before
the cosignature is returned. The files are read at the start and kept in memory after that: a file
that vanishes under a running witness changes nothing.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import NamedTuple

from policies.ground.canonical import b64, unb64
from policies.ground.errors import (
    Conflict,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    SluiceError,
    Unavailable,
)
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from policies.ground.signing import Signer
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.merkle_tree import Frontier
from policies.trail.proofs import signed_note, tree_proofs
from policies.trail.proofs.nodes import HASH, MAX_SIZE
from policies.trail.proofs.signed_note import COSIGNATURE, MAX_NOTE, Note, Signature, VerifierKey

_SUFFIX = ".note"


def origin_hash(origin: str) -> str:
    """Return the SHA-256 of a log's origin in lowercase hex. It stands for the origin in file names
    and, as the protocol says, in URLs."""
    return hashlib.sha256(origin.encode()).hexdigest()


class Remembered:
    """The checkpoint of one log that was signed last, as a note with the log's signature and the
    witness's."""

    __slots__ = ("checkpoint", "note")

    def __init__(self, note: Note) -> None:
        self.note = note
        self.checkpoint: Checkpoint = checkpoint.parse(note.text)


class Memory:
    """The last cosigned checkpoint of each log, stored in the directory `state`. Raises
    `UnusableFile` if any file in it can't be read: a witness that forgets a log might sign another
    version of it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        # By the origin's hash, which a monitor asks for.
        self._logs = {origin_hash(each.checkpoint.origin): each for each in _read(state)}

    def __len__(self) -> int:
        return len(self._logs)

    def all(self) -> ValuesView[Remembered]:
        return self._logs.values()

    def get(self, origin: str) -> Remembered | None:
        return self._logs.get(origin_hash(origin))

    def by_hash(self, hash_: str) -> Remembered | None:
        """Return the last checkpoint of the log whose origin has this hash; None if there is
        none."""
        return self._logs.get(hash_)

    def save(self, note: Note) -> Remembered:
        """Write a cosigned checkpoint to its file, durably. The call blocks for as long as the disk
        needs. Raises `UnusableFile`. The checkpoints in memory change only when `remember` is
        called."""
        made = Remembered(note)
        path = self._state / (origin_hash(made.checkpoint.origin) + _SUFFIX)
        secret_file.write(path, note.render().encode())
        # If we die here, the next start reads it: a checkpoint that was not answered yet, and that
        # continues everything which was. The log asks again, and gets its signature.
        return made

    def remember(self, made: Remembered) -> None:
        self._logs[origin_hash(made.checkpoint.origin)] = made


def _read(state: Path) -> Iterator[Remembered]:
    for path in sorted(state.glob(f"*{_SUFFIX}")):
        raw = secret_file.read(path) or b""
        try:
            found = Remembered(signed_note.parse(raw[: MAX_NOTE + 1].decode()))
        except (BadNote, UnicodeDecodeError) as error:
            raise UnusableFile(
                f"`{path}` is damaged: bring it back from a backup: {error}"
            ) from error
        if path.name != origin_hash(found.checkpoint.origin) + _SUFFIX:
            raise UnusableFile(f"`{path}` is the note of another log, `{found.checkpoint.origin}`")
        yield found


MAX_PROOF = 63
"""The most lines of a consistency proof, as the protocol says."""
MAX_BODY = 64 * 1024
"""The limit on a request's body, in bytes: 63 proof lines take 3 KB, and ten signatures of the
largest kind 40 KB."""
_MAX_DIGITS = 19


class Submission(NamedTuple):
    """A request to cosign `checkpoint`, the content of `note`. The log claims that it continues its
    tree of `old` entries; `proof` is the consistency proof."""

    old: int
    proof: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint

    @classmethod
    def parse(cls, body: bytes) -> "Submission":
        """Parse the body of a request. Raises `Malformed` if it is not in the form of the
        protocol."""
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise Malformed("the body is not UTF-8") from None
        # Neither the first line nor a proof line can be empty, so the first empty line ends them.
        head, apart, rest = text.partition("\n\n")
        first, *lines = head.split("\n")
        if not apart or len(lines) > MAX_PROOF:
            raise Malformed(
                f"expected `old <size>`, at most {MAX_PROOF} proof lines, an empty line and a note"
            )
        old, proof = _old(first), tuple(map(_hash, lines))
        try:
            note = signed_note.parse(rest)
            claimed = checkpoint.parse(note.text)
        except BadNote as error:
            raise Malformed(f"the checkpoint can't be read: {error}") from error
        if old > claimed.size:
            raise Malformed(f"the old size, {old}, is larger than the checkpoint's, {claimed.size}")
        return cls(old, proof, note, claimed)

    def encode(self) -> bytes:
        """Return the body of the request, so that `parse` gives this submission again."""
        lines = [f"old {self.old}", *map(b64, self.proof), "", self.note.render()]
        return "\n".join(lines).encode()


def read_size(text: str) -> int | None:
    """Parse the size of a tree, which has only one valid spelling: ASCII digits without a leading
    zero, up to 2**63 - 1. Returns None for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    size = int(text)
    return size if str(size) == text and size <= MAX_SIZE else None


def _old(line: str) -> int:
    word, _, digits = line.partition(" ")
    size = read_size(digits)
    if word != "old" or size is None:
        raise Malformed("the first line must be `old <size>`, the size in decimal")
    return size


def _hash(line: str) -> bytes:
    try:
        hash_ = unb64(line)
    except ValueError:
        hash_ = b""
    if len(hash_) != HASH:
        raise Malformed("a proof line is not the base64 of a hash")
    return hash_


WAIT_SECONDS = 10.0
"""The seconds that a request waits until earlier requests of the same log are done. The disk may be
slow."""
EMPTY_ROOT = Frontier().root()


class UnknownLog(NotFound):
    """no such log: the witness's operator has to add its origin and key to `logs`"""


class OtherSize(Conflict):
    """the old size is not the size that was cosigned last"""

    def __init__(self, size: int) -> None:
        super().__init__(f"the size that was cosigned last is {size}")
        self.size = size


class NotRemembered(SluiceError):
    """the checkpoint could not be written to disk, so it is not cosigned"""

    status = 503


class Witness:
    """Cosigns checkpoints with the witness's key. `logs` holds the public keys of each log, by its
    origin. Raises `UnusableFile` if `memory` holds a checkpoint that this key has not signed."""

    def __init__(
        self,
        name: str,
        signer: Signer,
        logs: Mapping[str, tuple[VerifierKey, ...]],
        memory: Memory,
        now: Callable[[], int],
    ) -> None:
        self.key = VerifierKey(name, COSIGNATURE, signer.public)
        self._signer = signer
        self._logs = logs
        self._memory = memory
        self._now = now
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        for each in memory.all():
            _cosigned(each, self.key)

    async def add(self, submission: Submission) -> Signature:
        """Cosign the submitted checkpoint, store it durably, and return the cosignature. Raises
        `UnknownLog`; `Forbidden` if the log did not sign the checkpoint; `OtherSize`; `Invalid` if
        the proof does not hold; `NotRemembered` and `Unavailable`."""
        signed = self._signed(submission)
        # Only for an origin of the configuration, so the number of locks is bounded.
        lock = self._locks[submission.checkpoint.origin]
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await lock.acquire()
        except TimeoutError:
            raise Unavailable("other checkpoints of this log are being written") from None
        try:
            # A client that hangs up does not cancel this: the server lets its handlers finish.
            return await self._cosign(submission, signed)
        finally:
            lock.release()

    def latest(self, origin_hash: str) -> str | None:
        """Return the checkpoint that was cosigned last, with the log's signature and the witness's;
        None if there is none."""
        found = self._memory.by_hash(origin_hash)
        return None if found is None else found.note.render()

    def _signed(self, submission: Submission) -> list[Signature]:
        """Return the log's valid signatures on the checkpoint. Raises `UnknownLog`, or `Forbidden`
        if there is none."""
        keys = self._logs.get(submission.checkpoint.origin)
        if keys is None:
            raise UnknownLog
        try:
            signed = signed_note.verified(submission.note, keys)
        except BadNote as error:
            raise Forbidden(str(error)) from error
        if not signed:
            raise Forbidden("the checkpoint is not signed by a key of this log")
        return signed

    async def _cosign(self, submission: Submission, signed: list[Signature]) -> Signature:
        last = self._memory.get(submission.checkpoint.origin)
        _check(submission, None if last is None else last.checkpoint)
        text = submission.note.text
        line = signed_note.cosign(text, self.key.name, self._signer, self._seconds())
        note = Note(text, (*signed, line))
        if last is None or last.note != note:
            # Nothing is signed twice in a second: the same note at the same time is the same line.
            self._memory.remember(await self._save(note))
        # It is on disk. If we die here, the log asks again, and learns this size from a 409.
        return line

    async def _save(self, note: Note) -> Remembered:
        try:
            return await asyncio.to_thread(self._memory.save, note)
        except UnusableFile as error:
            raise NotRemembered(str(error)) from error

    def _seconds(self) -> int:
        # The protocol forbids 0, which a machine without a clock would sign.
        return max(1, self._now() // 1_000_000)


def _check(submission: Submission, last: Checkpoint | None) -> None:
    """Check that a submitted checkpoint continues `last`, the one that was cosigned last. Makes the
    protocol's checks in the protocol's order."""
    old, proof, claimed = submission.old, submission.proof, submission.checkpoint
    size = 0 if last is None else last.size
    if old != size:
        raise OtherSize(size)
    if not claimed.size and claimed.root != EMPTY_ROOT:
        raise Invalid("the root of size 0 is not that of the empty tree")
    if last is None or not old:
        if proof:
            raise Invalid("there is no consistency proof from size 0")
    elif not tree_proofs.proves_consistency(old, last.root, claimed.size, claimed.root, proof):
        raise Invalid(f"the proof does not lead from size {old} to size {claimed.size}")


def _cosigned(last: Remembered, key: VerifierKey) -> None:
    try:
        found = signed_note.verified_cosignatures(last.note, [key])
    except BadNote:
        found = []
    if not found:
        raise UnusableFile(
            f"the state's note of `{last.checkpoint.origin}` is not signed by this key as "
            f"`{key.name}`: the key, the name or the note was exchanged"
        )
