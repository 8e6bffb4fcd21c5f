"""Responses about candidates (`policy-tools.md`, section 5)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from control_api.responses.access import CHANGED_ROW, ChangedRow
from control_api.responses.impact import DecisionGroup
from control_api.responses.review import BrokenGuardrail

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class CandidateListed:
    """A candidate, and how its decisions compare with the recorded ones. `decided` counts the
    events that were decided by a policy set with this candidate; `same` is what remains without
    the other three."""

    name: str
    revision: int
    created_at: str
    decided: int
    same: int
    newly_denied: int
    newly_allowed: int
    error: int

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "revision": 1042,
        "created_at": _NOW,
        "decided": 81920,
        "same": 81907,
        "newly_denied": 12,
        "newly_allowed": 1,
        "error": 0,
    }


@dataclass(frozen=True, slots=True)
class CandidateShown:
    """A candidate, and what it decides otherwise: the groups with the most events, at most a
    thousand."""

    name: str
    revision: int
    created_at: str
    decided: int
    same: int
    newly_denied: int
    newly_allowed: int
    error: int
    groups: list[DecisionGroup]

    example: ClassVar[dict[str, Any]] = {
        **CandidateListed.example,
        "groups": [DecisionGroup.example],
    }


@dataclass(frozen=True, slots=True)
class CandidatePublished:
    """A candidate as it is now beside the active policies. `policies` is their number."""

    name: str
    revision: int
    created_at: str
    policies: int

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "revision": 1042,
        "created_at": _NOW,
        "policies": 1,
    }


@dataclass(frozen=True, slots=True)
class CandidateReview:
    """What the promotion of a candidate would change: the requests that are decided otherwise, the
    guardrails that would refuse it, and policies by name. `changed_since` are the roles whose
    policies in force changed after the candidate was published, at most a hundred; a promotion puts
    back what it was made from. `version` is of both sides, for `If-Match` of the promotion."""

    name: str
    version: str
    changed_since: list[str]
    newly_allowed: list[ChangedRow]
    newly_denied: list[ChangedRow]
    broken_guardrails: list[BrokenGuardrail]
    added: list[str]
    updated: list[str]
    removed: list[str]

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "version": "1042-1040",
        "changed_since": [],
        "newly_allowed": [CHANGED_ROW],
        "newly_denied": [],
        "broken_guardrails": [],
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "removed": [],
    }


@dataclass(frozen=True, slots=True)
class CandidatePromoted:
    """What a promotion changed, by policy name."""

    name: str
    added: list[str]
    updated: list[str]
    unchanged: list[str]
    removed: list[str]

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "unchanged": [],
        "removed": [],
    }
