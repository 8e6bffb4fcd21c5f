"""What allowed retrievals returned, handed to the enforcer a moment later and many at once: the
agent has its answer, nobody waits, and a spool that is woken for each would serve fewer.

Knows outcomes. Knows nothing of answers or of how they are recorded.
"""

import asyncio
from typing import NamedTuple

from sidecar.enforce import Enforcer
from sidecar.recorder import RecordedDecision

COMPLETED, TRUNCATED, FAILED = "completed", "truncated", "failed"

DELAY_SECONDS = 0.01
MOST = 256
"""Gathered, they are handed over without waiting: memory stays flat."""


class ReturnedDocuments(NamedTuple):
    """What one retrieval returned. `sha256` in hex, of the body as it was handed on;
    `withheld` counts the documents that were left out of it, `retries` how often the request was
    sent again."""

    pending: RecordedDecision
    outcome: str
    status: int
    size: int
    sha256: str
    duration_ms: int
    withheld: int
    retries: int = 0


class LineageRecorder:
    """Gathers for `DELAY_SECONDS`."""

    def __init__(self, enforcer: Enforcer) -> None:
        self._enforcer = enforcer
        self._gathered: list[ReturnedDocuments] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(self, returned: ReturnedDocuments) -> None:
        # If we die before it is handed over, the retrieval is in the log without what it returned.
        self._gathered.append(returned)
        if len(self._gathered) >= MOST:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Hand over what is gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        for returned in gathered:
            detail: dict[str, int | str] = {
                "status": returned.status,
                "bytes": returned.size,
                "sha256": returned.sha256,
                "duration_ms": returned.duration_ms,
                "withheld": returned.withheld,
            }
            if returned.retries:
                detail["retries"] = returned.retries
            self._enforcer.note_retrieval(returned.pending, detail, returned.outcome)
