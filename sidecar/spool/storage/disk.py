"""All file operations of the spool in one class, so that a test can make any of them fail. Each
operation blocks, raises `OSError` unchanged and retries nothing."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

_ZEROS = bytes(1024 * 1024)
_MAX_BUFFERS = 64
_FILE_MODE = 0o600


def takes_new_files(path: Path) -> bool:
    """Return whether this process may create files in the directory."""
    return os.access(path, os.W_OK | os.X_OK, effective_ids=True)


class Disk:
    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.sync_directory(path.parent)

    def require_new_files(self, path: Path) -> None:
        """Raise `PermissionError` if this process may not create files in the directory."""
        # Asked, not tried: a disk that is full has its own way to be told, and takes files later.
        if not takes_new_files(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def sync_directory(self, path: Path) -> None:
        """Sync the directory itself, so that the names of its files survive a power cut."""
        # fsync(2): syncing a file does not sync the directory entry that names it.
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def lock(self, path: Path) -> int | None:
        """Lock the file at `path`. Returns a descriptor that holds the lock until it is closed or
        the process ends; None if another process holds the lock."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            # The kernel releases it however the process ends: no stale lock to clean up.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return descriptor

    def create_zeroed(self, path: Path, size: int) -> None:
        """Create a synced file of `size` zeros. Its blocks and length are then allocated, so
        writing into it needs no room, and syncing it no journal. On failure, no file is left."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        try:
            try:
                self._fill(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError:
            with contextlib.suppress(OSError):  # report the first failure
                path.unlink()
            raise

    def _fill(self, descriptor: int, size: int) -> None:
        offset = 0
        while offset < size:
            # Write as much as possible per call. After each call this thread waits for the
            # interpreter's lock, and under load it is the last to get it.
            whole, rest = divmod(size - offset, len(_ZEROS))
            zeros = [_ZEROS] * min(whole, _MAX_BUFFERS) or [_ZEROS[:rest]]
            written = os.pwritev(descriptor, zeros, offset)
            if written == 0:
                raise OSError("the disk takes no more bytes")
            offset += written
        os.fsync(descriptor)

    def open_to_write(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`, in several calls if the kernel takes less at a time."""
        written = os.pwrite(descriptor, data, offset)
        while written < len(data):
            step = os.pwrite(descriptor, memoryview(data)[written:], offset + written)
            if step == 0:
                raise OSError("the disk takes no more bytes")
            written += step

    def sync(self, descriptor: int) -> None:
        # The file has its length and its blocks since `create_zeroed`: no metadata to sync.
        os.fdatasync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rewrite(self, path: Path, data: bytes) -> None:
        descriptor = self.open_to_write(path)
        try:
            self.write(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """Read the file from `offset` to its end, or at most `length` bytes."""
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            wanted = max(0, size - offset) if length is None else length
            return os.pread(file.fileno(), wanted, offset)

    def put(self, path: Path, data: bytes) -> None:
        # A rename is atomic: a crash leaves the old content or the new, never a mixture.
        beside = path.with_name(path.name + ".tmp")
        self.note(beside, data, sync=True)
        self.rename(beside, path)
        self.sync_directory(path.parent)

    def note(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Overwrite the start of a small file. Without `sync`, the kernel decides when to write it
        to disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            self.write(descriptor, data, 0)
            if sync:
                # A crash may have left a longer file of this name.
                os.ftruncate(descriptor, len(data))
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        # Renamed first: if we die halfway, half an instance would look like one whose records are
        # missing. The next start removes what ends in `.tmp`.
        doomed = path if path.suffix == ".tmp" else path.with_name(path.name + ".tmp")
        if path.exists():
            path.rename(doomed)
        if doomed.exists():
            for file in doomed.iterdir():
                file.unlink()
            doomed.rmdir()

    def list(self, path: Path) -> list[Path]:
        """Return the directory's entries, sorted by name."""
        return sorted(path.iterdir())

    def size(self, path: Path) -> int:
        return path.stat().st_size
