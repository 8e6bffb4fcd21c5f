"""How a sidecar stands, in the words of its report to the centre. Knows what is told, and whom of
this sidecar's parts to ask; knows nothing of when.
"""

from math import isinf
from typing import Any

from sidecar.metrics.readiness import Readiness
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.replica import Replica
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool

LONGEST = 4000
"""Characters of why it refuses that are told."""


class SidecarStatus:
    """`told` is a report, but for what names the run."""

    def __init__(
        self,
        settings: SidecarSettings,
        copy: Replica,
        freshness: Freshness,
        spool: Spool,
        readiness: Readiness,
    ) -> None:
        agent = settings.agent
        self._who = {
            "sidecar_id": settings.id,
            "agent_id": None if agent is None else agent.id,
            "agent_role": None if agent is None else agent.role,
        }
        self._copy = copy
        self._freshness = freshness
        self._spool = spool
        self._readiness = readiness

    def told(self) -> dict[str, Any]:
        age = self._freshness.age()
        problems = self._readiness.problems()
        why = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        depth = self._spool.depth
        return {
            **self._who,
            "epoch": self._copy.epoch(),
            "revision": self._copy.policy_set.revision,
            "policy_set_age_ms": None if isinf(age) else int(age * 1000),
            "spool_depth": depth,
            "oldest_unshipped_ms": int(self._spool.oldest_age() * 1000) if depth else None,
            "refusing": why[:LONGEST] or None,
        }
