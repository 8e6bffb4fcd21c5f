"""Responses to evaluations (`service.md` 2.10, contract section 3)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from control_api.responses.audit import AuditEvent
from policies.definitions.model import Sensitivity

_EVENT_ID = "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d"
_HEADERS = ("X-Sluice-Decision", "X-Sluice-Event-Id")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A recorded decision (2.10)."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: str

    with_headers: ClassVar[tuple[str, ...]] = _HEADERS

    def headers(self) -> dict[str, str]:
        """The decision for a gateway that does not read the body (contract, section 6)."""
        return {"X-Sluice-Decision": self.decision, "X-Sluice-Event-Id": self.event_id}

    example: ClassVar[dict[str, Any]] = {
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "reason": "policy `loan-underwriting` allows role `loan_underwriter` to read `contracts` "
        "at `high`",
        "event_id": _EVENT_ID,
    }


@dataclass(frozen=True, slots=True)
class CheckShown:
    """The outcome of one of the ten checks, and what it compared."""

    check: str
    outcome: Literal["passed", "failed", "skipped", "not_reached"]
    facts: dict[str, Any]

    example: ClassVar[dict[str, Any]] = {
        "check": "sensitivity",
        "outcome": "failed",
        "facts": {
            "policy_name": "loan-underwriting",
            "sensitivity_level": "critical",
            "max_sensitivity": "high",
        },
    }


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """The smallest change that would have allowed the call, in words."""

    check: str | None
    policy_name: str
    change: str

    example: ClassVar[dict[str, Any]] = {
        "check": "sensitivity",
        "policy_name": "loan-underwriting",
        "change": "ask at `high` or below, or raise `max_sensitivity` of policy "
        "`loan-underwriting` to `critical`",
    }


@dataclass(frozen=True, slots=True)
class LevelsShown:
    """Who states which level of the source, and whose held: the highest."""

    request: Sensitivity | None
    sidecar: Sensitivity | None
    tenant: Sensitivity | None
    held: Sensitivity
    by: Literal["request", "sidecar", "tenant"]

    example: ClassVar[dict[str, Any]] = {
        "request": "high",
        "sidecar": None,
        "tenant": "critical",
        "held": "critical",
        "by": "tenant",
    }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The ten checks in order; `nearest_miss` is null on an `ALLOW`. `levels` is null if only the
    request states a level of the source."""

    checks: list[CheckShown]
    nearest_miss: NearestMiss | None
    levels: LevelsShown | None = None

    example: ClassVar[dict[str, Any]] = {
        "checks": [CheckShown.example],
        "nearest_miss": NearestMiss.example,
        "levels": LevelsShown.example,
    }


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision with its explanation, for `?explain=true`."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: str | None
    explain: Explanation

    def headers(self) -> dict[str, str]:
        """Like `Evaluated.headers`; empty for a simulation, which has no event."""
        if self.event_id is None:
            return {}
        return {"X-Sluice-Decision": self.decision, "X-Sluice-Event-Id": self.event_id}

    example: ClassVar[dict[str, Any]] = {**Evaluated.example, "explain": Explanation.example}


@dataclass(frozen=True, slots=True)
class ExplainedEvent:
    """An audit event with the explanation of its decision, or why it has no explanation."""

    event: AuditEvent
    explain: Explanation | None
    unexplained: str | None
    suggestion: str | None

    example: ClassVar[dict[str, Any]] = {
        "event": AuditEvent.example,
        "explain": Explanation.example,
        "unexplained": None,
        "suggestion": None,
    }


@dataclass(frozen=True, slots=True)
class Simulated:
    """What an evaluation would decide; there is no event."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: None = None

    example: ClassVar[dict[str, Any]] = {**Evaluated.example, "event_id": None}


@dataclass(frozen=True, slots=True)
class Batch:
    """The decisions on a batch, in its order; fewer than its items if it stopped early."""

    results: list[Evaluated]

    example: ClassVar[dict[str, Any]] = {"results": [Evaluated.example]}
