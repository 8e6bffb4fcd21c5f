"""Builds the sidecar's status report and sends it to the control API: every few seconds, and when
the policy set in force changes. Learns the control API's time from each answer."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
"""The most characters of the members `refusing` and `forked` in a report: the control API refuses
more than 4096."""

log = logging.getLogger(__name__)

PATH = "/v1/sidecars/report"
INTERVAL_SECONDS = 5.0
COALESCE_SECONDS = 0.2
"""The most seconds that a report is delayed after a change, so that several changes make one
report. The delay is random, which spreads the reports of a fleet in which the same document changed
everywhere."""
ANSWER_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class SidecarStatus:
    settings: SidecarSettings
    identity: Identity
    replica: Replica
    freshness: Freshness
    spool: Spool
    readiness: Readiness

    def snapshot(self) -> dict[str, Any]:
        age = self.freshness.age()
        problems = self.readiness.problems()
        # Ready, since it decides as it should: the freeze is the tenant's own wish. But it refuses.
        if (frozen := frozen_problem(self.replica.policy_set)) is not None:
            problems["tenant"] = frozen
        why = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        # Read once: two fields of one report must not contradict each other.
        depth = self.spool.depth
        return {
            "sidecar_id": self.settings.id,
            **self._who(),
            "epoch": self.replica.epoch(),
            "revision": self.replica.policy_set.revision,
            # A set that was never confirmed is infinitely old, which JSON can't say.
            "policy_set_age_ms": None if isinf(age) else int(age * 1000),
            "spool_depth": depth,
            "oldest_unshipped_ms": int(self.spool.oldest_age() * 1000) if depth else None,
            "refusing": why[:MAX_REASON_CHARS] or None,
        }

    def _who(self) -> dict[str, str | None]:
        """Return the members that identify the agent. An enrolled agent also has its workload, and
        the time when its enrolment ends."""
        if isinstance(self.identity, EnrolledIdentity):
            answer = self.identity.answer
            return {
                "agent_id": None if answer is None else answer.agent_id,
                "agent_role": None if answer is None else answer.agent_role,
                "workload": None if answer is None else answer.workload,
                "enrolled_until": None if answer is None else answer.expires_at,
            }
        agent = self.settings.agent
        agent_id, role = (None, None) if agent is None else (agent.id, agent.role)
        return {"agent_id": agent_id, "agent_role": role}


class StatusReporter:
    """The loop that sends status reports. `snapshot` returns the status, to which the id of this
    run is added. `failures` counts reports that the control API did not accept."""

    def __init__(
        self,
        control: ControlClient,
        time: ControlClock,
        clock: Clock,
        run_id: str,
        snapshot: Callable[[], dict[str, Any]],
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
        self.wake = self._changed.set
        """Makes the loop report soon, because the status has changed."""
        what, back = "reporting to the control API", "the control API takes reports again"
        self._outage = RepeatingOutageLogger(log, what, back, clock.monotonic)

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            # Cleared before the report: a change during it triggers the next one.
            self._changed.clear()
            await self.report()
            # Sidecars that started together must not report together forever.
            wait = INTERVAL_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311
            with suppress(TimeoutError):  # nothing changed: the regular report is due
                async with asyncio.timeout(wait):
                    await self._changed.wait()
                # Not at once: a page of changes wakes us several times.
                await asyncio.sleep(COALESCE_SECONDS * random.random())  # noqa: S311

    async def report(self) -> None:
        """Send one report, and pass on the checkpoint in the answer. A failed report is not
        repeated: the next one replaces it."""
        status = {
            **self._snapshot(),
            "run_id": self._run_id,
            "version": __version__,
            "forked": self._pinned.fork and self._pinned.fork[:MAX_REASON_CHARS],
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
