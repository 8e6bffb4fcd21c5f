"""Files in a directory that are written once, whole or not at all, with names that sort by age.

A file is written beside its place, synced, and linked to its name, which fails if the name exists.
So a name never shows half a note, and of two writers one is refused. Knows neither tenants nor what
a note is about, only that its first line is an origin.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from control_api.checkpoint_store.stored_note import MAX_NOTE, CheckpointStoreFault
from policies.ground.os_errors import worded

_DAY = 86_400


class NoteFolder:
    """The files of `path` whose names match `pattern`. The first `create` makes the folder."""

    def __init__(self, path: Path, pattern: re.Pattern[str]) -> None:
        self.path = path
        self._pattern = pattern

    def names(self) -> list[str]:
        """The names of the kept notes, the newest first."""
        try:
            found = [each.name for each in os.scandir(self.path)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault(self.path, error) from error
        return sorted((name for name in found if self._pattern.match(name)), reverse=True)

    def read(self, name: str) -> str | None:
        """None if a newer note has replaced it meanwhile."""
        try:
            with (self.path / name).open("rb") as file:
                # What is no text is no valid note either; the reader finds that out.
                return file.read(MAX_NOTE).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise fault(self.path, error) from error

    def create(self, name: str, note: str) -> bool:
        """False if the name exists. The name is on disk only after `sync`."""
        _make(self.path)
        unfinished = self.path / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            _write(unfinished, note.encode())
            # If we die here, a file that no reader looks at is left.
            os.link(unfinished, self.path / name)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
        return True

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        _sync(self.path)

    def drop_replaced(self, names: list[str]) -> None:
        """Removes the note before the newest one, if both are of the same origin and day."""
        if len(names) < 2:
            return
        newest, before = (self.path / name for name in names[:2])
        with suppress(FileNotFoundError):  # another process was faster
            if _origin_and_day(newest) == _origin_and_day(before):
                before.unlink()


def fault(path: Path, error: OSError) -> CheckpointStoreFault:
    return CheckpointStoreFault(f"checkpoint store `{path}`: {worded(error)}")


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _make(folder: Path) -> None:
    if folder.is_dir():
        return
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The names of new folders must survive a power failure too.
    for each in missing:
        _sync(each.parent)


def _origin_and_day(path: Path) -> tuple[bytes, int]:
    with path.open("rb") as file:
        return file.readline(MAX_NOTE), int(os.fstat(file.fileno()).st_mtime) // _DAY


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
