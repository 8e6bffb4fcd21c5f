"""The witness's key, and the lock that keeps a second process away from its state.

Two processes with one key and two memories could sign two versions of a log. Both the key file and
the state directory are locked, for as long as the process lives.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from control_api.security import file_lock, secret_file
from control_api.security.secret_file import UnusableFile
from policies.ground.canonical import b64, unb64
from policies.ground.os_errors import worded
from policies.ground.signing import Signer

_SEED = 32
_LOCK = "lock"


def load_signer(path: Path, *, make: bool) -> Signer:
    """The key in the file; with `make`, a new one where there is no file. Raises `UnusableFile`."""
    raw = secret_file.read(path)
    if raw is None:
        if not make:
            raise UnusableFile(
                f"`{path}` does not exist, but the state holds what its key signed: bring the key "
                "back, or begin as another witness with another `state`"
            )
        signer = Signer.generate()
        secret_file.write(path, b64(signer.seed()).encode() + b"\n")
        return signer
    try:
        seed = unb64(raw.decode("ascii").strip())
    except ValueError:
        seed = b""
    if len(seed) != _SEED:
        raise UnusableFile(f"`{path}` is not the base64 of {_SEED} bytes")
    return Signer(seed)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file, at most until the process ends, however it ends. Raises
    `UnusableFile` if another one has it."""
    try:
        handle = file_lock.acquire(path)
    except BlockingIOError as error:
        raise UnusableFile(f"`{path}` is in use by another witness process") from error
    except OSError as error:
        raise UnusableFile(f"`{path}` can't be opened: {worded(error)}") from error
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def locked_state(state: Path) -> Iterator[None]:
    """Makes the state directory if it is absent, and holds its lock."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableFile(f"`{state}` can't be made: {worded(error)}") from error
    with locked(state / _LOCK):
        yield
