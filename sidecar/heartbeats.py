"""Records a heartbeat when a new revision of the policy set is in force and no decision was made at
it yet. The log then shows within a second which sidecars have applied a change. Knows nothing of
how the set gets here, nor of how a record is shipped."""

import asyncio
from collections.abc import Callable

from sidecar.policy_cache.policy_view import PolicyView
from sidecar.recorder import Recorder

HEARTBEAT_SECONDS = 1.0
"""The minimum time between two heartbeats, and the maximum time from a change to its heartbeat."""
COALESCE_SECONDS = 0.5
"""The seconds that a heartbeat is held back, because a decision at the new revision makes it
needless."""


class Heartbeats:
    """The loop that records heartbeats. The policy set of `policies` has revision 0 until the first
    policy set arrives."""

    def __init__(
        self, recorder: Recorder, policies: PolicyView, monotonic: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._policy_set = policies.policy_set
        self._monotonic = monotonic
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Tell the loop that the policy set has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Record the heartbeats that are due, until cancelled."""
        last = -HEARTBEAT_SECONDS
        while True:
            await self._changed.wait()
            await asyncio.sleep(max(COALESCE_SECONDS, last + HEARTBEAT_SECONDS - self._monotonic()))
            # Cleared before recording: a change meanwhile gets a record of its own.
            self._changed.clear()
            last = self._monotonic()
            if not self._recorder.note_revision(self._policy_set.revision):
                self._changed.set()  # the spool may be full: try again in a second
