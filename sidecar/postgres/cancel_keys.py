"""Gives each agent's connection a key of the sidecar's own, and finds the connection that a
CancelRequest names. The server's key never leaves the sidecar.
"""

import secrets
from hmac import compare_digest
from typing import Generic, TypeVar

from sidecar.postgres.backend import BackendKey

_SHORT, _LONG = 4, 32
_PROCESSES = 1 << 31

Running = TypeVar("Running")


class CancelKeys(Generic[Running]):
    """The keys of the connections that are open at one port."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[bytes, Running]] = {}

    def issue(self, running: Running, *, long: bool) -> BackendKey:
        """Return a new key for a connection. `long` says that the agent speaks version 3.2, in
        which a key can't be guessed; one of 3.0 has 32 bits, and the number of a process that is as
        hard to guess."""
        while (process := secrets.randbelow(_PROCESSES)) in self._open:
            continue
        secret = secrets.token_bytes(_LONG if long else _SHORT)
        self._open[process] = secret, running
        return BackendKey(process, secret)

    def find(self, key: BackendKey) -> Running | None:
        """Return the connection with this key; None if there is none."""
        found = self._open.get(key.process)
        if found is None or not compare_digest(found[0], key.secret):
            return None
        return found[1]

    def withdraw(self, key: BackendKey) -> None:
        """Forget the key of a connection that has ended."""
        self._open.pop(key.process, None)
