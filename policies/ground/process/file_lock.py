"""A lock between processes, on a file: the kernel releases it when its process ends, however it
ends."""

import fcntl
import os
from pathlib import Path


def acquire(path: Path) -> int:
    """Lock the file, which is made if it is absent, and return its handle: `os.close` unlocks it.
    Raises `BlockingIOError` if another process has the lock, `OSError` if the file can't be
    opened."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle
