"""A file for what a command will write once the API has answered, made before the request."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from deploy.commands.client.credentials import UnusableArguments


@contextlib.contextmanager
def new_file(name: str | None) -> Iterator[int | None]:
    """An empty file, open for writing, that only its owner may read; None without a name. Removed
    if it stays empty. Raises `UnusableArguments` if it can't be made, or is there already."""
    if name is None:
        yield None
        return
    try:
        # O_EXCL: an existing file may be open to others, or hold what is still needed.
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UnusableArguments(f"`{name}` can't be created: {error.strerror}") from error
    try:
        yield file
    finally:
        # What was written stays, whatever failed afterwards.
        if not os.fstat(file).st_size:
            Path(name).unlink(missing_ok=True)
        os.close(file)
