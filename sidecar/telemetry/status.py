"""Builds the sidecar's status report for the control API. Knows its contents and which part to ask
for each; knows nothing of when it is sent."""

from math import isinf
from typing import Any

from sidecar.control.identity import EnrolledIdentity, Identity
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
        """The agent. An enrolled one's workload too, and until when it is enrolled."""
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
