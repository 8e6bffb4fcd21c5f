"""What every sender does. Knows no protocol."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

AuditEvent = Mapping[str, Any]
"""An event as `policies.trail.entry.audit_event` shows it."""


class TargetAway(Exception):
    """the target did not acknowledge; what was sent since the last `settle` is sent again.

    `after` is how many seconds the target asked to wait."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class Sender(Protocol):
    """One target. Its methods are called one at a time."""

    @property
    def encode(self) -> "Callable[[AuditEvent, str], bytes]":
        """How an event of a tenant looks there. Runs in a thread."""

    async def send(self, encoded: list[bytes]) -> int:
        """Send events of one tenant, in order. Returns how many of them the target will never take.
        Raises `TargetAway`."""

    async def settle(self) -> None:
        """Returns once the target has acknowledged all that was sent. Raises `TargetAway`."""

    async def abandon(self) -> None:
        """Give up what was sent and not settled, and any connection. Never raises."""
