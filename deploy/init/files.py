"""Writes new files with their modes, and leaves existing files alone. Knows nothing of systemd or
Compose."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SECRET, PUBLIC = 0o600, 0o644
"""The modes of files: `SECRET` for files with secrets, `PUBLIC` for files that a service reads as a
user of its own."""


class NewFile(NamedTuple):
    """A file to write. `path` is relative to the folder of the installation."""

    path: str
    content: str
    mode: int = PUBLIC


class CannotWrite(Exception):
    """a file can't be written"""


def write(folder: Path, files: Iterable[NewFile]) -> list[tuple[Path, bool]]:
    """Write those of `files` that don't exist. Returns each path, with True if it was written.
    Raises `CannotWrite`; the files written before stay, and a second run continues from there."""
    return [(folder / file.path, _write(folder / file.path, file)) for file in files]


def _write(path: Path, file: NewFile) -> bool:
    try:
        _make_parents(path.parent)
        # Exclusive, and through no link: an existing file may be in use, or somebody else's trap.
        # The mode is set before anything is in the file.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode)
    except OSError as error:
        # Also said of a parent that is a file.
        if isinstance(error, FileExistsError) and os.path.lexists(path):
            return False
        raise CannotWrite(f"`{path}` can't be written: {error.strerror}") from error
    with os.fdopen(handle, "w", encoding="utf-8") as output:
        # A restrictive umask would hide a unit from systemd's tools, a lax one can't add rights.
        os.fchmod(output.fileno(), file.mode)
        output.write(file.content)
    return True


def _make_parents(folder: Path) -> None:
    if not folder.is_dir():
        _make_parents(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
