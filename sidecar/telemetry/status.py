"""Builds the sidecar's status report for the control API. Knows its contents and which part to ask
for each; knows nothing of when it is sent."""

from math import isinf
from typing import Any

from sidecar.metrics.readiness import Readiness
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.replica import Replica
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool

MAX_REFUSING_CHARS = 4000
"""The longest `refusing`, in characters: the control API refuses more than 4096."""


class SidecarStatus:
    """`snapshot` returns a report, without the run id and the version."""

    def __init__(
        self,
        settings: SidecarSettings,
        replica: Replica,
        freshness: Freshness,
        spool: Spool,
        readiness: Readiness,
    ) -> None:
        agent = settings.agent
        self._identity = {
            "sidecar_id": settings.id,
            "agent_id": None if agent is None else agent.id,
            "agent_role": None if agent is None else agent.role,
        }
        self._replica = replica
        self._freshness = freshness
        self._spool = spool
        self._readiness = readiness

    def snapshot(self) -> dict[str, Any]:
        age = self._freshness.age()
        problems = self._readiness.problems()
        why = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        # Read once: two fields of one report must not contradict each other.
        depth = self._spool.depth
        return {
            **self._identity,
            "epoch": self._replica.epoch(),
            "revision": self._replica.policy_set.revision,
            # A set that was never confirmed is infinitely old, which JSON can't say.
            "policy_set_age_ms": None if isinf(age) else int(age * 1000),
            "spool_depth": depth,
            "oldest_unshipped_ms": int(self._spool.oldest_age() * 1000) if depth else None,
            "refusing": why[:MAX_REFUSING_CHARS] or None,
        }
