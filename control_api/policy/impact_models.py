"""Defines the request to decide recorded traffic again by other policies, and the responses
(`TOOLS.md`, Impact)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import orjson

from control_api.audit.event_models import EndOfEntries, FirstEntry
from control_api.policy.models import PolicyBody, PolicySetBody
from policies.ground.canonical import encode
from policies.ground.json_body import parse_object


class ImpactRequest(PolicySetBody):
    """All policies that would be in force, and the part of the log to decide again."""

    example: ClassVar[dict[str, Any]] = {
        "policies": [PolicyBody.example],
        "from": "2026-01-24T12:00:00Z",
    }

    first: FirstEntry = None
    until: EndOfEntries = None


class Prepared(NamedTuple):
    """A request that was decoded and validated: its bounds, and its policies as JSON, as a run
    stores and reads them."""

    first: str | None
    until: str | None
    policies: bytes


def prepare(body: bytes, in_force: bytes) -> bytes:
    """The prepared request, for `read_prepared`. `in_force` is the JSON array of the documents of
    all roles. Raises `Malformed`, and `Invalid` with all complaints."""
    request = ImpactRequest.read(parse_object(body, None, unique=True))
    policies = [{**each, "policy_id": "", "version": 0} for each in request.bodies(in_force)]
    return b"\n".join((orjson.dumps([request.first, request.until]), encode(policies)))


def read_prepared(prepared: bytes) -> Prepared:
    """The reverse of `prepare`. The policies, which may be large, are not decoded."""
    line, _, policies = prepared.partition(b"\n")
    first, until = orjson.loads(line)
    return Prepared(first, until, policies)


_NOW = "2026-01-31T12:00:00.000000Z"
_ID = "imp_3nB7xGvQ2mT5kWc8LpR0aZ"
_EVENT = "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d"


@dataclass(frozen=True, slots=True)
class ImpactStarted:
    """A run that was started."""

    impact_id: str

    example: ClassVar[dict[str, Any]] = {"impact_id": _ID}


@dataclass(frozen=True, slots=True)
class DecisionGroup:
    """Decisions that other policies would make differently, of one role on one source. `error` is
    of candidates alone: they could not decide."""

    agent_role: str
    source_id: str
    direction: Literal["newly_denied", "newly_allowed", "unchanged", "error"]
    policy_name_before: str
    policy_name_after: str
    count: int
    first: str
    last: str
    example_event_ids: list[str]

    example: ClassVar[dict[str, Any]] = {
        "agent_role": "loan_underwriter",
        "source_id": "contracts",
        "direction": "newly_denied",
        "policy_name_before": "underwriting-reads",
        "policy_name_after": "underwriting-reads",
        "count": 214,
        "first": "2026-01-24T12:00:03.123456Z",
        "last": _NOW,
        "example_event_ids": [_EVENT],
    }


@dataclass(frozen=True, slots=True)
class Unreplayable:
    """Decisions that can't be made again from what their entries hold, and why."""

    why: Literal["no_facts", "unknown_check", "unknown_level", "masked", "unreadable"]
    count: int

    example: ClassVar[dict[str, Any]] = {"why": "no_facts", "count": 3}


@dataclass(frozen=True, slots=True)
class Renamed:
    """Decisions that stay the same, and would be another policy's. `left_out` counts those whose
    group is past the limit."""

    count: int
    groups: list[DecisionGroup]
    left_out: int

    example: ClassVar[dict[str, Any]] = {"count": 0, "groups": [], "left_out": 0}


@dataclass(frozen=True, slots=True)
class ImpactResponse:
    """What other policies would have decided, as far as the run has come. The entries read are
    `from` up to `to`, exclusive. Each decision `read` counts in exactly one of `unchanged`,
    `newly_denied`, `newly_allowed` and `unreplayable`."""

    impact_id: str
    state: Literal["running", "done", "cancelled", "failed"]
    reason: str | None
    progress: float
    first_seq: int
    until_seq: int
    entries: int
    read: int
    unchanged: int
    newly_denied: int
    newly_allowed: int
    groups: list[DecisionGroup]
    left_out: int
    renamed: Renamed
    unreplayable: list[Unreplayable]
    checkpoint_size: int | None
    created_at: str
    ended_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "impact_id": _ID,
        "state": "done",
        "reason": None,
        "progress": 1.0,
        "first_seq": 120,
        "until_seq": 1019,
        "entries": 899,
        "read": 880,
        "unchanged": 663,
        "newly_denied": 214,
        "newly_allowed": 0,
        "groups": [DecisionGroup.example],
        "left_out": 0,
        "renamed": Renamed.example,
        "unreplayable": [Unreplayable.example],
        "checkpoint_size": 1024,
        "created_at": _NOW,
        "ended_at": _NOW,
    }
