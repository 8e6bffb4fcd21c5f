"""Defines the interface of the objects that send decisions to an export target, and makes the TLS
contexts for targets. The target's certificate and name are verified, by the system's certificate
authorities or those in the file `ca`."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from control_api.security.export_targets import ExportTarget

AuditEvent = Mapping[str, Any]
"""An audit event as `policies.trail.entry.audit_event` shows it."""


class TargetAway(Exception):
    """the target did not acknowledge; what was sent since the last `settle` is sent again.

    `after` is how many seconds the target asked to wait."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class Sender(Protocol):
    """Sends decisions to one export target. Its methods are called one at a time."""

    @property
    def encode(self) -> "Callable[[AuditEvent, str], bytes]":
        """The function that encodes an event of a tenant for the target. The function is called in
        a thread."""

    async def send(self, encoded: list[bytes]) -> int:
        """Send events of one tenant, in order. Return how many of them the target refuses for good.
        Raise `TargetAway` if the target does not accept the others."""

    async def settle(self) -> None:
        """Wait until the target has acknowledged everything that was sent. Raise `TargetAway` if it
        does not."""

    async def abandon(self) -> None:
        """Give up what was sent and not settled, and close the connection if there is one. Never
        raises."""


class TargetTls:
    """The TLS context of one export target, made again when one of its files has changed."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target
        files = (target.ca, target.certificate, target.key)
        self._files = [each for each in files if each is not None]
        self._made: tuple[list[tuple[int, int]], ssl.SSLContext] | None = None

    async def context(self) -> ssl.SSLContext:
        """Return the current TLS context. Raise `TargetAway` if the files can't be used."""
        # Reading the authorities takes some 20 ms: in a thread, and not for every connection.
        try:
            return await asyncio.to_thread(self._context)
        except (OSError, ValueError) as error:  # `ssl.SSLError` is an `OSError`
            raise TargetAway(f"its TLS files can't be used: {_reason(error)}") from error

    def _context(self) -> ssl.SSLContext:
        state = [_state(each) for each in self._files]
        if self._made is not None and self._made[0] == state:
            return self._made[1]
        target = self._target
        made = ssl.create_default_context(cafile=str(target.ca) if target.ca else None)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if not target.close_notify:
            # From TLS 1.3 on, a receiver may still refuse our certificate after the handshake, and
            # the end of the connection would not tell.
            made.maximum_version = ssl.TLSVersion.TLSv1_2
        if target.certificate is not None and target.key is not None:
            # Never ask at a terminal for the password of an encrypted key.
            made.load_cert_chain(target.certificate, target.key, password=_no_password)
        self._made = state, made
        return made


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
