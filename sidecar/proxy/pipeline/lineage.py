"""Records what allowed retrievals returned. Gathers for a moment, then hands many results to the
enforcer at once: the agents have their responses already, and waking the spool for each result
would cost throughput.

Knows outcomes. Knows nothing of how they are recorded.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sidecar.enforce import Enforcer
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.recorder import RecordedDecision

COMPLETED, TRUNCATED, FAILED = "completed", "truncated", "failed"

DELAY_SECONDS = 0.01
MOST_GATHERED = 256
"""This many results are handed over without waiting any longer, so that memory stays flat."""


class ReturnedDocuments(NamedTuple):
    """What one retrieval returned. `size` in bytes and `sha256` in hex describe the body as the
    agent got it. `withheld` is the number of documents left out of it, `retries` how many times the
    request was sent again."""

    recorded: RecordedDecision
    outcome: str
    status: int
    size: int
    sha256: str
    duration_ms: int
    withheld: int
    retries: int = 0


class LineageRecorder:
    """Gathers results for `DELAY_SECONDS`. `now` is the monotonic clock that also gives the start
    of each request."""

    def __init__(self, enforcer: Enforcer, now: Callable[[], float]) -> None:
        self._enforcer = enforcer
        self.now = now
        self._gathered: list[ReturnedDocuments] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(
        self,
        decisions: Iterable[RecordedDecision],
        relayed: RelayedResponse,
        outcome: str,
        started: float,
    ) -> None:
        """Adds what an allowed retrieval returned, once for each of its decisions."""
        duration_ms = int((self.now() - started) * 1000)
        # Computed once: a request about several sources has one response.
        size, digest = relayed.size, relayed.sha256
        for recorded in decisions:
            self.add(
                ReturnedDocuments(
                    recorded,
                    outcome,
                    relayed.status,
                    size,
                    digest,
                    duration_ms,
                    relayed.withheld,
                    relayed.retries,
                )
            )

    def add(self, returned: ReturnedDocuments) -> None:
        # If the process dies before the hand-over, the log has the retrieval but not its result.
        self._gathered.append(returned)
        if len(self._gathered) >= MOST_GATHERED:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Hands over the gathered results."""
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
            self._enforcer.note_retrieval(returned.recorded, detail, returned.outcome)
