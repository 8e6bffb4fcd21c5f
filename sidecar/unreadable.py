"""Logs the paths of requests that can't be read. A record has no place for one: it would stay in
the audit trail for good, and may name a person. Decides and records nothing."""

import logging
from collections.abc import Callable
from urllib.parse import unquote

from policies.ground.log_line import printable
from policies.ground.masking import MaskingTurns

SECONDS = 1.0
"""The least seconds between two lines: an agent chooses how many such requests it sends."""
LONGEST = 200
"""The most characters of a path in a line, before they are escaped."""
log = logging.getLogger(__name__)


class UnreadableRequests:
    """Writes at most one line in `SECONDS`, and counts what it leaves out. `masks` says whether to
    mask personal data now."""

    def __init__(
        self, monotonic: Callable[[], float], masks: Callable[[], bool], masking: MaskingTurns
    ) -> None:
        self._monotonic = monotonic
        self._masks = masks
        self._masking = masking
        self._next = float("-inf")
        self._left_out = 0

    async def note(self, method: str, target: str, event_id: str) -> None:
        """Log a refused request. `target` is its target as it arrived; the query, which may hold
        keys and texts, is left out."""
        now = self._monotonic()
        if now < self._next:
            self._left_out += 1
            return
        left_out, self._left_out, self._next = self._left_out, 0, now + SECONDS
        log.warning(
            "event `%s` is an unreadable request: %s `%s`%s",
            event_id,
            printable(method[:20]),
            await self._shown(_path(target)),
            f"; {left_out} before it were not logged" if left_out else "",
        )

    async def _shown(self, whole: str) -> str:
        path = whole[:LONGEST]
        if self._masks():
            # Masking would not recognize half an address, or an escaped one.
            path = path if path == whole else path.rpartition("/")[0]
            plain = unquote(path)
            masked = (await self._masking.text(plain)).text
            path = path if masked == plain else masked
        return printable(path) + ("…" if len(whole) > LONGEST else "")


def _path(target: str) -> str:
    """Return the path of a target, without the authority, which may contain a password, and without
    the query."""
    before = target.partition("?")[0]
    _, mark, rest = before.partition("://")
    return "/" + rest.partition("/")[2] if mark and not before.startswith("/") else before
