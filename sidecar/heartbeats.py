"""Records a heartbeat when a new revision of the policy set is in force and nothing was decided at
it: so the log shows, within a second, who has applied a change. Knows nothing of how the set gets
here, nor of how a record is shipped.
"""

import asyncio
from collections.abc import Callable

from sidecar.policy_cache.policy_view import PolicyView
from sidecar.recorder import Recorder

SECONDS = 1.0
"""The least time between two heartbeats, and the most from a change to its heartbeat."""
COALESCE_SECONDS = 0.5
"""How long a decision has time to make the heartbeat needless."""


class Heartbeats:
    """The loop. `policies` has revision 0 until the first policy set arrives."""

    def __init__(
        self, recorder: Recorder, policies: PolicyView, monotonic: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._policy_set = policies.policy_set
        self._monotonic = monotonic
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """The policy set has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Never returns."""
        last = -SECONDS
        while True:
            await self._changed.wait()
            await asyncio.sleep(max(COALESCE_SECONDS, last + SECONDS - self._monotonic()))
            # Cleared before the record: a change during it gets its own.
            self._changed.clear()
            last = self._monotonic()
            if not self._recorder.note_revision(self._policy_set.revision):
                self._changed.set()  # the spool may be full: try again in a second
