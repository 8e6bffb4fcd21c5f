"""Reads and writes files that hold a secret: mode 0600, written as a whole or not at all.

Also a lock between processes, on a file. The kernel releases it when its process ends, however it
ends.
"""

import fcntl
import os
from pathlib import Path

from policies.ground.errors import worded


class UnusableFile(Exception):
    """one of the service's files can't be read or written, or other users could read it"""


def write(path: Path, content: bytes) -> None:
    """Write `content` to the file at `path`, mode 0600. It is durable when this returns. Raises
    `UnusableFile`."""
    # The file is renamed when it is complete: a crash leaves the old file or the new one, never a
    # part of one.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # An earlier process with our id may have crashed and left one. Create it anew, so that its
        # mode is certainly 0600.
        unfinished.unlink(missing_ok=True)
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        _sync_directory(path.parent)
    except OSError as error:
        raise UnusableFile(f"`{path}` can't be written: {worded(error)}") from error


def read(path: Path) -> bytes | None:
    """Return the file's bytes, or None if it does not exist. Raises `UnusableFile` if it can't be
    read, or if other users may read it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise UnusableFile(f"`{path}` is readable by other users: chmod 600 or remove it")
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableFile(f"`{path}` can't be read: {worded(error)}") from error


def read_mounted(path: Path) -> bytes:
    """Return the bytes of a file that another program provides, such as a mounted Kubernetes
    Secret. Raises `UnusableFile` if it can't be read, or if others may read it."""
    # Kubernetes mounts a Secret as links to files of root's, which the pod's own group may read.
    # A file of root's can't be chmodded by the service, so its group's reading is no mistake.
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            forbidden = 0o037 if status.st_uid == 0 else 0o077
            if status.st_mode & forbidden:
                raise UnusableFile(f"`{path}` is accessible to other users: chmod 600")
            return file.read()
    except OSError as error:
        raise UnusableFile(f"`{path}` can't be read: {worded(error)}") from error


def make_directory(path: Path) -> None:
    """Create the data directory with mode 0700 if it does not exist. Raises `UnusableFile`."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableFile(
            f"SLUICE_DATA_DIR: `{path}` can't be created: {worded(error)}"
        ) from error


def _sync_directory(path: Path) -> None:
    # Without this the rename may not survive a power failure.
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def acquire(path: Path) -> int:
    """Lock the file at `path`, which is created if it is absent, and return its descriptor:
    `os.close` unlocks it. Raises `BlockingIOError` if another process has the lock, `OSError` if
    the file can't be opened."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
