"""The key to ask a control API with, from a file. A message never holds it."""

import json
import os
import stat
from pathlib import Path

MAX_KEY = 4096


class ServiceUnusable(Exception):
    """a service, or the arguments that name it, that can't be used; the message says why"""


def read_key(name: str) -> str:
    """The API key in a file that only its owner can read, or the admin key in the control API's
    `first-start.json`. Raises `ServiceUnusable`, never with the key."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            # The open file, not its path: another file could take its place before it is read. A
            # pipe passes, such as `<(pass show sluice)`.
            status = os.fstat(file.fileno())
            # A mounted Kubernetes Secret belongs to root, and the pod's own group reads it.
            forbidden = 0o037 if status.st_uid == 0 and os.geteuid() else 0o077
            if stat.S_ISREG(status.st_mode) and status.st_mode & forbidden:
                raise ServiceUnusable(
                    f"--key-file `{path}` is accessible to other users: chmod 600 it"
                )
            text = file.read(MAX_KEY + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it does not hold a key"
        raise ServiceUnusable(f"--key-file `{path}` can't be read: {why}") from error
    if text.startswith("{"):  # no key begins with it
        try:
            text = str(json.loads(text)["admin_key"])
        except (ValueError, KeyError):
            raise ServiceUnusable(f"--key-file `{path}` is JSON without an `admin_key`") from None
    return usable_key(text, f"--key-file `{path}`")


def usable_key(text: str, origin: str) -> str:
    """`text`, if it can be sent as a header: a line break would inject another header."""
    if not text or len(text) > MAX_KEY or not text.isascii() or not text.isprintable():
        raise ServiceUnusable(f"{origin} does not hold a key")
    return text
