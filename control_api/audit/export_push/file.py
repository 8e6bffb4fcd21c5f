"""Appends decisions to a file, one per line. They count as acknowledged once they are on the disk.

A file that was renamed or removed is created anew at the next turn, so it can be rotated. If a
crash left half a line at its end, that is cut off when the file is opened, and the decision is sent
again.
"""

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from control_api.audit.export_push.sender import AuditEvent, TargetAway
from control_api.log.formats import FORMATS, Format
from control_api.security.export_targets import ExportTarget
from policies.ground.errors import worded

_PIECE = 65_536
_MODE = 0o640  # a shipper of the same group may read it


class FileSender:
    """Sends decisions to a file, which stays open and locked: two processes that share a disk must
    not cut off each other's lines."""

    def __init__(self, target: ExportTarget) -> None:
        self._path = Path(target.path)
        self._format: Format = FORMATS[target.format]
        # A disk that hangs holds this thread, and not those that others wait for; and no step
        # begins before the one that was given up has ended.
        self._thread = ThreadPoolExecutor(1, "export")
        self._handle: int | None = None
        self._settled = 0

    def encode(self, event: AuditEvent, tenant_id: str) -> bytes:
        return self._format.encode(event, tenant_id) + b"\n"

    async def send(self, encoded: list[bytes]) -> int:
        await self._run(self._append, b"".join(encoded))
        return 0

    async def settle(self) -> None:
        await self._run(self._sync)

    async def abandon(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._cut_off)

    async def _run(self, step: Callable[..., None], *data: bytes) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, step, *data)
        except BlockingIOError as error:
            raise TargetAway("another process has locked the file") from error
        except OSError as error:
            raise TargetAway(worded(error)) from error

    def _append(self, data: bytes) -> None:
        handle = self._open()
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]

    def _sync(self) -> None:
        if self._handle is not None:
            os.fsync(self._handle)
            self._settled = os.fstat(self._handle).st_size

    def _cut_off(self) -> None:
        """Close the file, and remove what was not settled from its end, such as half a line on a
        full disk."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            if os.fstat(handle).st_size > self._settled:
                os.ftruncate(handle, self._settled)
        except OSError:
            # Lines that stay are repeated; half of one is cut off when the file is opened.
            return
        finally:
            os.close(handle)

    def _open(self) -> int:
        if self._handle is not None and not self._is_current(self._handle):
            os.close(self._handle)
            self._handle = None
        if self._handle is None:
            self._handle, self._settled = _open(self._path)
        return self._handle

    def _is_current(self, handle: int) -> bool:
        """Return whether writing may go on in the open file: the path still leads to it, or some of
        what was written is not settled yet."""
        ours = os.fstat(handle)
        if ours.st_size > self._settled:
            return True  # in the middle of a turn: its lines stay together, and are synced
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _open(path: Path) -> tuple[int, int]:
    """Open and lock the file, and cut off half a line at its end. Return its descriptor and size.
    Raise `OSError` if that fails."""
    # Opening a pipe that has no reader would block.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    handle = os.open(path, flags, _MODE)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = _end_of_lines(handle)
        os.ftruncate(handle, size)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # or a new file's name could be lost with the power
        finally:
            os.close(folder)
    except BaseException:
        os.close(handle)
        raise
    return handle, size


def _end_of_lines(handle: int) -> int:
    """Return the size of the file up to and including its last line break."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - _PIECE)
        found = os.pread(handle, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
