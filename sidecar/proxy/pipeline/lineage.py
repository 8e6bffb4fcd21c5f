"""Records what allowed retrievals returned (their lineage). Gathers results for a moment, then
hands many to the enforcer at once: the agents have their responses already, and waking the spool
for each result would cost throughput.

Knows outcomes. Knows nothing of how they are recorded.
"""

import asyncio
from collections.abc import Callable, Iterable

from sidecar.enforce import Enforcer
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.recorder import RecordedDecision

COMPLETED, TRUNCATED, FAILED = "completed", "truncated", "failed"

DELAY_SECONDS = 0.01
MOST_GATHERED = 256
"""The number of results at which they are handed over without waiting any longer, so that memory
use stays bounded."""


class LineageRecorder:
    """Gathers results for up to `DELAY_SECONDS`, then hands them to the enforcer. `now` is the
    monotonic clock; the start time of each request is by the same clock."""

    def __init__(self, enforcer: Enforcer, now: Callable[[], float]) -> None:
        self._enforcer = enforcer
        self.now = now
        self._gathered: list[tuple[RecordedDecision, dict[str, int | str], str]] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(
        self,
        decisions: Iterable[RecordedDecision],
        relayed: RelayedResponse,
        outcome: str,
        started: float,
    ) -> None:
        """Add the result of an allowed retrieval, once for each of its decisions. `started` is when
        the request began, by the clock `now`."""
        # Made once: a request about several sources has one response.
        detail: dict[str, int | str] = {
            "status": relayed.status,
            "bytes": relayed.size,
            "sha256": relayed.sha256,
            "duration_ms": int((self.now() - started) * 1000),
            "withheld": relayed.withheld,
        }
        if relayed.retries:
            detail["retries"] = relayed.retries
        self.note_detail(decisions, detail, outcome)

    def note_detail(
        self,
        decisions: Iterable[RecordedDecision],
        detail: dict[str, int | str],
        outcome: str,
    ) -> None:
        """Add the result of an allowed retrieval in other words than those of HTTP, once for each
        of its decisions. `detail` holds nothing personal."""
        # If the process dies before the hand-over, the log has the retrieval but not its result.
        for recorded in decisions:
            self._gathered.append((recorded, detail, outcome))
        if len(self._gathered) >= MOST_GATHERED:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, []
        for recorded, detail, outcome in gathered:
            self._enforcer.note_retrieval(recorded, detail, outcome)
