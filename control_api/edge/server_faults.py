"""Logs that requests fail because something that the service needs is away: one line a minute for
each cause, and one at its end. A database that restarts would otherwise cost a line per request.

Knows no cause of its own, and no response.
"""

import logging
from collections.abc import Callable

from policies.ground.errors import Unavailable

PAUSE_SECONDS = 60.0
"""The least time between two lines about one cause."""
NO_OPERATION = "none"
"""The operation of a request that failed before its route was known, as its key was checked."""
_MAX_CAUSES = 64
"""Messages are few, but some name what is away."""
_log = logging.getLogger("sluice.http")


class ServerFaults:
    """`monotonic` is a clock in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._told_at: dict[str, float] = {}
        self._failing: dict[str, str] = {}
        """By operation, the cause that was told of it."""

    def failed(self, operation: str, error: Unavailable) -> None:
        """Note that a request of this operation failed."""
        cause, now = error.message, self._monotonic()
        if now - self._told_at.get(cause, float("-inf")) < PAUSE_SECONDS:
            return
        if len(self._told_at) >= _MAX_CAUSES:
            self._told_at.clear()
        self._told_at[cause] = now
        self._failing[operation] = cause
        _log.error("request failed with %d: %s", error.status, cause)

    def answered(self, operation: str) -> None:
        """Note that a request of this operation did not fail."""
        # Only an operation that failed shows that the cause is over: others may not need it.
        if self._failing and self._failing.pop(operation, None) is not None:
            back = (
                "API keys are checked"
                if operation == NO_OPERATION
                else f"`{operation}` is answered"
            )
            _log.warning("recovered: %s again", back)
