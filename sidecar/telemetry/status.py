"""Builds the sidecar's status report and sends it to the control API: every few seconds, and when
the policy set in force changes. Learns the control API's time from the answer. Nothing waits for a
report or depends on it.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from math import isinf
from typing import Any

import orjson

from policies import __version__
from policies.ground.canonical import micros
from policies.ground.clock import Clock
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.control.clock import ControlClock
from sidecar.control.identity import EnrolledIdentity, Identity
from sidecar.control.log_client import PinnedCheckpoint
from sidecar.metrics.readiness import Readiness
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.replica import Replica
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool
from sidecar.telemetry.standing_denials import frozen_problem

MAX_REASON_CHARS = 4000
"""The longest `refusing` and `forked`, in characters: the control API refuses more than 4096."""


class SidecarStatus:
    """`snapshot` returns a report, without the run id and the version."""

    def __init__(
        self,
        settings: SidecarSettings,
        identity: Identity,
        replica: Replica,
        freshness: Freshness,
        spool: Spool,
        readiness: Readiness,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._replica = replica
        self._freshness = freshness
        self._spool = spool
        self._readiness = readiness

    def snapshot(self) -> dict[str, Any]:
        age = self._freshness.age()
        problems = self._readiness.problems()
        # Ready, since it decides as it should: the freeze is the tenant's own wish. But it refuses.
        if (frozen := frozen_problem(self._replica.policy_set)) is not None:
            problems["tenant"] = frozen
        why = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        # Read once: two fields of one report must not contradict each other.
        depth = self._spool.depth
        return {
            "sidecar_id": self._settings.id,
            **self._who(),
            "epoch": self._replica.epoch(),
            "revision": self._replica.policy_set.revision,
            # A set that was never confirmed is infinitely old, which JSON can't say.
            "policy_set_age_ms": None if isinf(age) else int(age * 1000),
            "spool_depth": depth,
            "oldest_unshipped_ms": int(self._spool.oldest_age() * 1000) if depth else None,
            "refusing": why[:MAX_REASON_CHARS] or None,
        }

    def _who(self) -> dict[str, str | None]:
        """Return the agent; for an enrolled one also its workload, and when its enrolment ends."""
        if isinstance(self._identity, EnrolledIdentity):
            answer = self._identity.answer
            return {
                "agent_id": None if answer is None else answer.agent_id,
                "agent_role": None if answer is None else answer.agent_role,
                "workload": None if answer is None else answer.workload,
                "enrolled_until": None if answer is None else answer.expires_at,
            }
        agent = self._settings.agent
        return {
            "agent_id": None if agent is None else agent.id,
            "agent_role": None if agent is None else agent.role,
        }


log = logging.getLogger(__name__)

PATH = "/v1/sidecars/report"
INTERVAL_SECONDS = 5.0
COALESCE_SECONDS = 0.2
"""Changes this close together make one report. The random delay also spreads the reports of a fleet
in which the same document changed everywhere."""
ANSWER_SECONDS = 4.0

Snapshot = Callable[[], dict[str, Any]]


class StatusReporter:
    """The reporting loop. `snapshot` returns the status; the id of this run is added to it.
    `failures` counts reports that the control API did not take."""

    def __init__(
        self,
        control: ControlClient,
        time: ControlClock,
        clock: Clock,
        run_id: str,
        snapshot: Snapshot,
        pinned: PinnedCheckpoint,
    ) -> None:
        self.failures = 0
        self._control = control
        self._time = time
        self._monotonic = clock.monotonic
        self._run_id = run_id
        self._snapshot = snapshot
        self._pinned = pinned
        self._changed = asyncio.Event()
        self._outage = RepeatingOutageLogger(
            log,
            "reporting to the control API",
            "the control API takes reports again",
            clock.monotonic,
        )

    def wake(self) -> None:
        """Report soon: the status has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            # Cleared before the report: a change during it triggers the next one.
            self._changed.clear()
            await self.report()
            # Sidecars that started together must not report together forever.
            wait = INTERVAL_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
                # Not at once: a page of changes wakes us several times.
                await asyncio.sleep(COALESCE_SECONDS * random.random())  # noqa: S311
            except TimeoutError:
                pass  # nothing changed: the regular report is due

    async def report(self) -> None:
        """Send one report, and take in the checkpoint that the answer shows. A failed report is not
        repeated: the next one replaces it."""
        status = {
            **self._snapshot(),
            "run_id": self._run_id,
            "version": __version__,
            "forked": self._forked(),
            # Says that this sidecar applies the source levels that the tenant states. Older
            # versions don't send it.
            "source_levels": True,
        }
        if (size := self._pinned.wanted()) is not None:
            # An older control API ignores this, and shows no checkpoint.
            status["pinned_size"] = size
        body = orjson.dumps(status)
        sent = self._monotonic()
        try:
            answer = await self._control.post(PATH, body, seconds=ANSWER_SECONDS)
            reported = micros(answer["now"])
        except (ControlUnavailable, KeyError, TypeError, ValueError) as error:
            self.failures += 1
            self._outage.failing(str(error))
            return
        # Only the answer to a report tells the time, since it says when it was made.
        self._time.learn(reported, sent, self._monotonic())
        self._outage.recovered()
        known = self._pinned.fork
        await self._pinned.shown(answer)
        if self._pinned.fork != known:
            # An operator should see it in the fleet now, not with the next regular report.
            self.wake()

    def _forked(self) -> str | None:
        return None if self._pinned.fork is None else self._pinned.fork[:MAX_REASON_CHARS]
