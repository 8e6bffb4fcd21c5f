"""Words an error of the operating system: the name of its number, and its meaning."""

import errno
import os
from pathlib import Path


def worded(error: OSError, path: Path | None = None) -> str:
    """Return a text such as ``ENOSPC (no space left on device) at `/var/lib/sluice/spool` ``; the
    path only if one is given. Only for errors of files: errors of TLS and of name resolution have
    other numbers."""
    where = "" if path is None else f" at `{path}`"
    if error.errno is None:
        return (str(error) or type(error).__name__) + where
    return numbered(error.errno, error.strerror) + where


def numbered(number: int, text: str | None = None) -> str:
    """Return the name of an `errno` and its meaning, or `text` instead of the meaning."""
    text = text or os.strerror(number)
    text = text[:1].lower() + text[1:]
    name = errno.errorcode.get(number)
    return text if name is None else f"{name} ({text})"
