"""Writes an installation's keys to a directory, from which systemd or Docker Compose hands them to
the service. Never replaces a key. Knows no Kubernetes; `keys_secret` does."""

import os
from collections.abc import Mapping
from pathlib import Path

from control_api.security.secret_file import UnusableFile
from policies.ground.os_errors import worded


def write_keys(directory: Path, keys: Mapping[str, bytes]) -> list[str]:
    """Write the files that are missing, each with mode 0600. Returns the names of those written.
    Raises `UnusableFile`."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableFile(f"`{directory}` can't be created: {worded(error)}") from error
    written = []
    for name, content in keys.items():
        path = directory / name
        try:
            # Exclusive, and no link is followed: a key that is there may be in use.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise UnusableFile(f"`{path}` can't be written: {worded(error)}") from error
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.append(name)
    return written
