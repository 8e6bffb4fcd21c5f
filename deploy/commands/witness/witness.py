"""Decides whether a checkpoint is cosigned (C2SP `tlog-witness`, `add-checkpoint`), and remembers
the signed checkpoints.

INVARIANT: of each log, every checkpoint that was ever cosigned is the beginning of the next one. A
cosignature leaves this process only once the checkpoint is on disk.

The body of a request:

    old <size>
<base64 hash>
…
<the checkpoint, a signed note>

A file is the cosigned checkpoint itself. It is replaced whole, and is durable before `put` returns.
Read at start and kept in memory after that: a file that vanishes under a running witness changes
nothing.
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
    """Return the origin's name in file names and, by the protocol, in URLs: SHA-256, lowercase
    hex."""
    return hashlib.sha256(origin.encode()).hexdigest()


class Remembered:
    """The last checkpoint that was signed of one log, with both signatures."""

    __slots__ = ("checkpoint", "note")

    def __init__(self, note: Note) -> None:
        self.note = note
        self.checkpoint: Checkpoint = checkpoint.parse(note.text)


class Memory:
    """The directory `state`. Opening it raises `UnusableFile` if any file can't be read: a witness
    that forgets a log would sign another version of it."""

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
        """Return the log whose origin has this hash."""
        return self._logs.get(hash_)

    def save(self, note: Note) -> Remembered:
        """Write the note; it is durable when this returns. Blocks for as long as the disk does.
        Raises `UnusableFile`; the memory has not changed then."""
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
"""The most lines of a consistency proof, by the protocol."""
MAX_BODY = 64 * 1024
"""The limit on a body, in bytes: 63 proof lines have 3 KB, and ten signatures of the largest kind
40."""
_MAX_DIGITS = 19


class Submission(NamedTuple):
    """A log's claim: `checkpoint`, which the note states, continues the tree of size `old`."""

    old: int
    proof: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint

    @classmethod
    def parse(cls, body: bytes) -> "Submission":
        """Parse a body. Raises `Malformed` unless it is in the form of the protocol."""
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
        """Return the body: the inverse of `parse`."""
        lines = [f"old {self.old}", *map(b64, self.proof), "", self.note.render()]
        return "\n".join(lines).encode()


def read_size(text: str) -> int | None:
    """Parse a size in the one spelling that it may have: ASCII digits without a leading zero, up to
    2**63 - 1. Return None for anything else."""
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
"""The seconds that a request waits for others of the same log. The disk may be slow."""
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
    """One witness, and the logs that it serves. `logs` holds the keys by origin. Making it raises
    `UnusableFile` if `memory` holds a checkpoint that this key has not signed."""

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
        """Return the cosignature, durable before it is returned. Raises `UnknownLog`, `Forbidden`
        for a checkpoint that the log did not sign, `OtherSize`, `Invalid` for a proof that does not
        hold, `NotRemembered` and `Unavailable`."""
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
        """Return the checkpoint that was cosigned last, with the log's signature and ours."""
        found = self._memory.by_hash(origin_hash)
        return None if found is None else found.note.render()

    def _signed(self, submission: Submission) -> list[Signature]:
        """Return the log's signatures, verified."""
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
    """Compare a checkpoint with the one that was cosigned last, by the protocol's checks in their
    order."""
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
