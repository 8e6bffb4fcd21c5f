"""Shows the explanation of a decision in a response: each check, and the nearest miss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from policies.definitions.model import Sensitivity


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


def explanation_shown(explanation: Mapping[str, Any]) -> Explanation:
    """What `policies.explain.explain` gives, as a response shows it."""
    checks = [CheckShown(**check) for check in explanation["checks"]]
    miss = explanation["nearest_miss"]
    levels = explanation.get("levels")
    shown = None if levels is None else LevelsShown(**levels)
    return Explanation(checks, None if miss is None else NearestMiss(**miss), shown)
