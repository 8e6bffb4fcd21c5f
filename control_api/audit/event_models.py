"""Defines the responses about audit events, their lineage and explanation, and the checkpoint that
covers an event.

The API's description is made from these types, and orjson writes them unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from control_api.edge.answers import Page
from control_api.edge.field_descriptions import says
from control_api.log.read import EventPage
from policies.definitions.model import Sensitivity


@dataclass(frozen=True, slots=True)
class ExplainedCheck:
    """The outcome of one of the ten checks, and what it compared."""

    check: str
    outcome: Annotated[
        Literal["passed", "failed", "skipped", "not_reached"], says("The outcome of the check.")
    ]
    facts: Annotated[dict[str, Any], says("What the check compared.")]

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
    change: Annotated[str, says("The smallest change that would have allowed the call, in words.")]

    example: ClassVar[dict[str, Any]] = {
        "check": "sensitivity",
        "policy_name": "loan-underwriting",
        "change": "ask at `high` or below, or raise `max_sensitivity` of policy "
        "`loan-underwriting` to `critical`",
    }


@dataclass(frozen=True, slots=True)
class LevelsResponse:
    """The level of the source that each party states. The highest holds, `by` says whose it is."""

    request: Annotated[Sensitivity | None, says("The request's level. `null` if it states none.")]
    sidecar: Annotated[
        Sensitivity | None, says("The level in the sidecar's settings. `null` if there is none.")
    ]
    tenant: Annotated[
        Sensitivity | None, says("The tenant's level (`/v1/sources`). `null` if there is none.")
    ]
    held: Annotated[
        Sensitivity, says("The highest level that is stated, by which the decision was made.")
    ]
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

    checks: list[ExplainedCheck]
    nearest_miss: NearestMiss | None
    levels: Annotated[
        LevelsResponse | None,
        says("Who states which level of the source. `null` if only the request does."),
    ] = None

    example: ClassVar[dict[str, Any]] = {
        "checks": [ExplainedCheck.example],
        "nearest_miss": NearestMiss.example,
        "levels": LevelsResponse.example,
    }


def explanation_shown(explanation: Mapping[str, Any]) -> Explanation:
    """Convert the result of `policies.explain.explain` to the type that responses show."""
    checks = [ExplainedCheck(**check) for check in explanation["checks"]]
    miss = explanation["nearest_miss"]
    levels = explanation.get("levels")
    shown = None if levels is None else LevelsResponse(**levels)
    return Explanation(checks, None if miss is None else NearestMiss(**miss), shown)


_NOW = "2026-01-31T12:00:00.000000Z"
_EVENT_ID = "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d"
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An audit event (`CONTRACT.md`, Audit events). `user_id`, `query` and `parameters` are
    null if they were erased; hashes are leaf hashes in hex."""

    event_id: str
    seq: int
    timestamp: str
    time_doubtful: bool
    agent_foreign: bool
    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    check: str | None
    policy_version: int | None
    agent_role: str
    agent_id: str | None
    user_id: str | None
    source_id: str
    source_type: str
    sensitivity_level: Sensitivity
    session_id: str | None
    task_type: str | None
    query: str | None
    parameters: str | None
    statement_id: str | None
    statement_look: str | None
    statement_fingerprint: str | None
    statement_digest: str | None
    context_hash: str
    pii_masked: bool
    sidecar_id: str | None
    hash: str
    prev_hash: str

    example: ClassVar[dict[str, Any]] = {
        "event_id": _EVENT_ID,
        "seq": 17,
        "timestamp": _NOW,
        "time_doubtful": False,
        "agent_foreign": False,
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "reason": "policy `loan-underwriting` allows role `loan_underwriter` to read `contracts` "
        "at `high`",
        "check": None,
        "policy_version": 1,
        "agent_role": "loan_underwriter",
        "agent_id": "agt_loans",
        "user_id": "u-1001",
        "source_id": "contracts",
        "source_type": "api",
        "sensitivity_level": "high",
        "session_id": None,
        "task_type": None,
        "query": "terms of contract 4711",
        "parameters": None,
        "statement_id": None,
        "statement_look": None,
        "statement_fingerprint": None,
        "statement_digest": None,
        "context_hash": _HASH,
        "pii_masked": False,
        "sidecar_id": None,
        "hash": _HASH,
        "prev_hash": _HASH,
    }


@dataclass(frozen=True, slots=True)
class LineageAction:
    """A downstream action (`CONTRACT.md`, Lineage) and when it was recorded."""

    event_id: str
    action_type: str
    detail: Annotated[
        dict[str, Any] | None, says("Any details of the action. `null` if they were erased.")
    ]
    outcome: Annotated[str | None, says("The outcome of the action. `null` if none was recorded.")]
    timestamp: str
    seq: int

    example: ClassVar[dict[str, Any]] = {
        "event_id": _EVENT_ID,
        "action_type": "summary_sent",
        "detail": {"channel": "email"},
        "outcome": "completed",
        "timestamp": _NOW,
        "seq": 18,
    }


@dataclass(frozen=True, slots=True)
class Lineage:
    """An event and the actions recorded on it, in order (`CONTRACT.md`, Lineage)."""

    event: AuditEvent
    actions: Annotated[list[LineageAction], says("What followed from the event, oldest first.")]

    example: ClassVar[dict[str, Any]] = {
        "event": AuditEvent.example,
        "actions": [LineageAction.example],
    }


@dataclass(frozen=True, slots=True)
class PurgeAnchor:
    """The place at which the last purge cut the log: the size and root of its tree there, and the
    hash of the last purged entry (`CONTRACT.md`, Verification and retention)."""

    last_seq: Annotated[int, says("The sequence number of the last purged entry.")]
    last_hash: Annotated[str, says("The leaf hash of the last purged entry, in hex.")]
    tree_size: Annotated[int, says("How many entries the log held when it was cut.")]
    root_hash: str
    purged_count: Annotated[int, says("How many entries have been purged so far.")]
    purged_before: Annotated[
        str, says("Entries recorded before this time were purged (RFC 3339, UTC).")
    ]
    purged_at: Annotated[str, says("When the purge ran (RFC 3339, UTC).")]

    example: ClassVar[dict[str, Any]] = {
        "last_seq": 999,
        "last_hash": _HASH,
        "tree_size": 1000,
        "root_hash": _HASH,
        "purged_count": 1000,
        "purged_before": _NOW,
        "purged_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """The log's latest signed note (C2SP `tlog-checkpoint`) and its contents."""

    size: int
    root_hash: str
    note: Annotated[str, says("The checkpoint as a signed note (C2SP `tlog-checkpoint`).")]

    example: ClassVar[dict[str, Any]] = {
        "size": 1019,
        "root_hash": _HASH,
        "note": "sluice/0194bd6e/default\n1019\n…\n\n— sluice/0194bd6e/default …\n",
    }


AuditPolicyText = Annotated[str, says("What happens to old audit events, in words.")]


@dataclass(frozen=True, slots=True)
class Retention:
    """The time for which audit events are kept, and the anchor of the last purge (`CONTRACT.md`,
    Verification and retention)."""

    retention_days: int
    policy: AuditPolicyText
    anchor: PurgeAnchor | None
    held_from: Annotated[
        int | None,
        says(
            "The first entry that a legal hold keeps: retention removes none from there on. `null` "
            "without one."
        ),
    ]

    example: ClassVar[dict[str, Any]] = {
        "retention_days": 365,
        "policy": "audit events recorded more than 365 days ago are removed every hour, the "
        "oldest first; the rest still verifies, from the anchor on",
        "anchor": PurgeAnchor.example,
        "held_from": 1017,
    }


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of a verification: whether the log is valid, and its first entry that fails
    (`CONTRACT.md`, Verification and retention). `total` counts entries of every kind, `events`
    audit events. `level` is of the latest checkpoint, and `witnesses` have cosigned it."""

    valid: Annotated[bool, says("Whether every entry, hash and signature is valid.")]
    total: Annotated[int, says("How many entries of every kind were verified.")]
    events: int
    first_seq: Annotated[int | None, says("The sequence number of the log's oldest entry.")]
    last_seq: Annotated[int | None, says("The sequence number of the last entry.")]
    head_hash: Annotated[str | None, says("The leaf hash of the latest entry, in hex.")]
    broken_at: str | None
    reason: Annotated[
        str | None, says("What fails at `broken_at`: `code: sentence`. `null` if the log is valid.")
    ]
    anchor: PurgeAnchor | None
    checkpoint: SignedCheckpoint | None
    level: Literal["unsigned", "signed", "witnessed"]
    witnesses: int
    checked_at: Annotated[str, says("When the log was verified (RFC 3339, UTC).")]

    example: ClassVar[dict[str, Any]] = {
        "valid": True,
        "total": 19,
        "events": 17,
        "first_seq": 0,
        "last_seq": 18,
        "head_hash": _HASH,
        "broken_at": None,
        "reason": None,
        "anchor": None,
        "checkpoint": None,
        "level": "signed",
        "witnesses": 0,
        "checked_at": _NOW,
    }


def event_page(trail: EventPage) -> Page[AuditEvent]:
    return Page(
        [AuditEvent(**event) for event in trail.events],
        None if trail.next is None else (trail.next,),
    )


@dataclass(frozen=True, slots=True)
class ExplainedEvent:
    """An audit event with the explanation of its decision, or why it has no explanation."""

    event: AuditEvent
    explain: Annotated[
        Explanation | None,
        says(
            "The outcome of each check, and what would have allowed the call, by the policies that "
            "decided. `null` if that can't be told."
        ),
    ]
    unexplained: Annotated[
        str | None,
        says("Why the decision can't be explained, in words. `null` if it is explained."),
    ]
    suggestion: str | None

    example: ClassVar[dict[str, Any]] = {
        "event": AuditEvent.example,
        "explain": Explanation.example,
        "unexplained": None,
        "suggestion": None,
    }
