"""Checkpoints in a directory: `<dir>/<tenant>/<number>.note`, each file written once.

A note is written beside its place, synced, and linked to its name, which fails if the name exists.
So a name never shows half a note, and of two writers one is refused. The directory may be shared
by several processes and, on a network file system with hard links, by several machines.

Of each day the last note stays, so that years of checkpoints stay a small directory. Knows nothing
of signatures.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

from control_api.checkpoint_store.stored_note import (
    MAX_NOTE,
    CheckpointStoreFault,
    StoredNote,
)

_NAME = re.compile(r"([0-9]{20})\.note\Z")
_DAY = 86_400
_TRIES = 10


class FileStore:
    """The notes under one directory, which is created at the first `put`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def latest(self, tenant_id: str) -> StoredNote | None:
        return next(self.notes(tenant_id), None)

    def notes(self, tenant_id: str) -> Iterator[StoredNote]:
        folder = self._folder(tenant_id)
        below: int | None = None
        for _ in range(_TRIES):
            for number in self._numbers(folder):
                if below is not None and number >= below:
                    continue
                note = self._read(folder, number)
                if note is None:
                    # A newer note has replaced it meanwhile. List again: its successor is the
                    # latest now.
                    break
                below = number
                yield StoredNote(number, note)
            else:
                return
        raise CheckpointStoreFault(f"`{folder}` changes faster than it can be read")

    def put(self, tenant_id: str, number: int, note: str) -> bool:
        folder = self._folder(tenant_id)
        place = folder / _name(number)
        unfinished = folder / f".{number}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            _make(folder)
            try:
                _write(unfinished, note.encode())
                # If we die here, a file that no reader looks at is left.
                os.link(unfinished, place)
            except FileExistsError:
                return False
            finally:
                with suppress(FileNotFoundError):
                    unfinished.unlink()
            # An old name may be free again, because its note was replaced (`_drop_replaced`). Then
            # a later one exists, which this writer has not seen.
            numbers = self._numbers(folder)
            if numbers[0] != number:
                place.unlink(missing_ok=True)
                return False
            # The note is on disk, but its name only after this.
            _sync(folder)
            _drop_replaced(folder, numbers)
        except OSError as error:
            raise _fault(folder, error) from error
        return True

    def tenants(self) -> list[str]:
        try:
            found = [each.name for each in os.scandir(self._directory) if each.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _fault(self._directory, error) from error
        return sorted(unquote(name) for name in found)

    def _folder(self, tenant_id: str) -> Path:
        # `quote` leaves dots alone, and a folder `..` would be another one.
        return self._directory / quote(tenant_id, safe="").replace(".", "%2E")

    def _numbers(self, folder: Path) -> list[int]:
        """The numbers of the kept notes, the highest first."""
        try:
            names = (_NAME.match(each.name) for each in os.scandir(folder))
            return sorted((int(name[1]) for name in names if name), reverse=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _fault(folder, error) from error

    def _read(self, folder: Path, number: int) -> str | None:
        try:
            with (folder / _name(number)).open("rb") as file:
                # What is no text is no valid note either; the reader finds that out.
                return file.read(MAX_NOTE).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _fault(folder, error) from error


def _name(number: int) -> str:
    return f"{number:020}.note"


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _make(folder: Path) -> None:
    if folder.is_dir():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The names of new folders must survive a power failure too.
    for each in (folder.parent, folder.parent.parent):
        _sync(each)


def _drop_replaced(folder: Path, numbers: list[int]) -> None:
    """Removes the note before the newest one, if both are of the same log and day."""
    if len(numbers) < 2:
        return
    newest, before = (folder / _name(number) for number in numbers[:2])
    with suppress(FileNotFoundError):  # another process was faster
        if _origin_and_day(newest) == _origin_and_day(before):
            before.unlink()


def _origin_and_day(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        return file.readline(MAX_NOTE), int(os.fstat(file.fileno()).st_mtime) // _DAY


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fault(path: Path, error: OSError) -> CheckpointStoreFault:
    return CheckpointStoreFault(f"checkpoint store `{path}`: {error.strerror}")
