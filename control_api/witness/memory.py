"""What the witness signed last of each log: one file a log, `<SHA-256 of the origin>.note`.

A file is the cosigned checkpoint itself. It is replaced whole, and is durable before `put` returns.
Read at start and kept in memory after that: a file that vanishes under a running witness changes
nothing. Knows no signature; `witness` verifies what is read here.
"""

import hashlib
from collections.abc import Iterator, ValuesView
from pathlib import Path

from control_api.security import secret_file
from control_api.security.secret_file import UnusableFile
from policies.trail import checkpoint
from policies.trail.checkpoint import BadNote, Checkpoint
from policies.trail.proofs import signed_note
from policies.trail.proofs.signed_note import MAX_NOTE, Note

_SUFFIX = ".note"


def origin_hash(origin: str) -> str:
    """The origin's name in file names and, by the protocol, in URLs: SHA-256, lowercase hex."""
    return hashlib.sha256(origin.encode()).hexdigest()


class Remembered:
    """The last checkpoint that was signed of one log, with both signatures."""

    __slots__ = ("checkpoint", "note")

    def __init__(self, note: Note) -> None:
        self.note = note
        self.checkpoint: Checkpoint = checkpoint.parse(note.text)


class Memory:
    """The directory `state`. Raises `UnusableFile` when made, if any file can't be read: a witness
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
        """The log whose origin has this hash."""
        return self._logs.get(hash_)

    def save(self, note: Note) -> Remembered:
        """Write the note; it is durable when this returns. Blocks for as long as the disk does.
        Raises `UnusableFile`; what is remembered has not changed then."""
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
