"""What the API answers with: one frozen noun for each resource of `service.md` section 2, in the
form that goes over the wire.

The description is made from these types, and orjson writes them as they are: what is declared is
what is sent. Times are RFC 3339 text. Knows nothing of where the values come from.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

_NOW = "2026-01-31T12:00:00.000000Z"
_EVENT_ID = "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d"
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

Status = Literal["draft", "pending_approval", "approved", "deprecated"]
TenantScope = Literal["evaluate", "read", "admin", "sidecar"]
Level = Literal["low", "medium", "high", "critical"]


@dataclass(frozen=True, slots=True)
class Document:
    """An answer that is no JSON of ours: a page to read, metrics."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Empty:
    """The empty object of `service.md`."""

    example: ClassVar[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The answer to an evaluation (2.10)."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: str

    example: ClassVar[dict[str, Any]] = {
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "reason": "policy `loan-underwriting` allows role `loan_underwriter` to read `contracts` "
        "at `high`",
        "event_id": _EVENT_ID,
    }


@dataclass(frozen=True, slots=True)
class ListedKey:
    """An API key without its secret (2.3)."""

    key_id: str
    name: str
    scope: TenantScope
    bound_agent_id: str | None
    permitted_roles: list[str]
    expires_at: str | None
    created_at: str

    example: ClassVar[dict[str, Any]] = {
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "name": "underwriting agents",
        "scope": "evaluate",
        "bound_agent_id": None,
        "permitted_roles": [],
        "expires_at": "2027-01-31T12:00:00.000000Z",
        "created_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new API key, with the secret that is shown this once (4.5)."""

    key_id: str
    name: str
    key: str
    scope: TenantScope
    expires_at: str | None
    created_at: str

    example: ClassVar[dict[str, Any]] = {
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "name": "underwriting agents",
        "key": "slc_" + "0" * 49,
        "scope": "evaluate",
        "expires_at": "2027-01-31T12:00:00.000000Z",
        "created_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class PolicyShown:
    """A policy (2.1) and what the store knows of it (contract, section 4)."""

    policy_id: str
    version: int
    name: str
    agent_role: str
    allowed_sources: list[str]
    denied_sources: list[str]
    max_sensitivity: Level
    allowed_tasks: list[str]
    denied_tasks: list[str]
    session_ttl_minutes: int | None
    permitted_agent_ids: list[str]
    industry: str | None
    process_group: str | None
    user_modified: bool
    created_at: str
    updated_at: str

    example: ClassVar[dict[str, Any]] = {
        "policy_id": "pol_5dK1yHsV9nE3rJx6MqT2bU",
        "version": 1,
        "name": "loan-underwriting",
        "agent_role": "loan_underwriter",
        "allowed_sources": ["contracts", "rest://crm/customers/*"],
        "denied_sources": ["payroll"],
        "max_sensitivity": "high",
        "allowed_tasks": [],
        "denied_tasks": ["marketing"],
        "session_ttl_minutes": 480,
        "permitted_agent_ids": [],
        "industry": "banking",
        "process_group": "lending",
        "user_modified": False,
        "created_at": _NOW,
        "updated_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What reading the policy files changed, by name of policy."""

    status: Literal["reloaded"]
    added: list[str]
    updated: list[str]
    unchanged: list[str]
    removed: list[str]
    skipped: list[str]

    example: ClassVar[dict[str, Any]] = {
        "status": "reloaded",
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "unchanged": [],
        "removed": [],
        "skipped": [],
    }


@dataclass(frozen=True, slots=True)
class AgentShown:
    """A registry entry (2.2)."""

    agent_id: str
    agent_role: str
    display_name: str | None
    description: str | None
    owner: str | None
    framework: str | None
    permitted_roles: list[str]
    credential_type: Literal["api_key", "jwt_oidc", "mtls", "conjur"]
    bound_key_id: str | None
    status: Status
    created_at: str
    updated_at: str

    example: ClassVar[dict[str, Any]] = {
        "agent_id": "agt_loans",
        "agent_role": "loan_underwriter",
        "display_name": "Loan underwriting",
        "description": "Reads contracts to assess an application",
        "owner": "lending",
        "framework": "langchain",
        "permitted_roles": ["loan_underwriter"],
        "credential_type": "api_key",
        "bound_key_id": None,
        "status": "draft",
        "created_at": _NOW,
        "updated_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An audit event (2.4, contract section 4). `user_id` and `query` are null where they were
    erased; hashes are leaf hashes in hex."""

    event_id: str
    seq: int
    timestamp: str
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
    sensitivity_level: Level
    session_id: str | None
    task_type: str | None
    query: str | None
    context_hash: str
    pii_masked: bool
    sidecar_id: str | None
    hash: str
    prev_hash: str

    example: ClassVar[dict[str, Any]] = {
        "event_id": _EVENT_ID,
        "seq": 17,
        "timestamp": _NOW,
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "reason": Evaluated.example["reason"],
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
        "context_hash": _HASH,
        "pii_masked": False,
        "sidecar_id": None,
        "hash": _HASH,
        "prev_hash": _HASH,
    }


@dataclass(frozen=True, slots=True)
class LineageAction:
    """A downstream action (2.5), and when it was recorded."""

    event_id: str
    action_type: str
    detail: dict[str, Any] | None
    outcome: str | None
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
    """An event and what followed from it, in order (4.2)."""

    event: AuditEvent
    actions: list[LineageAction]

    example: ClassVar[dict[str, Any]] = {
        "event": AuditEvent.example,
        "actions": [LineageAction.example],
    }


@dataclass(frozen=True, slots=True)
class Verified:
    """Whether the log holds, and where it does not (contract, section 4). `total` counts entries
    of every kind, `events` audit events."""

    valid: bool
    total: int
    events: int
    first_seq: int | None
    last_seq: int | None
    head_hash: str | None
    broken_at: str | None
    reason: str | None
    anchor: dict[str, Any] | None
    checkpoint: dict[str, Any] | None
    checked_at: str

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
        "checked_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class SetDocument:
    """A document of the policy set; `body` is its canonical JSON as text, null once removed."""

    name: str
    revision: int
    digest: str | None
    body: str | None


@dataclass(frozen=True, slots=True)
class PolicySetPage:
    """What changed in the policy set since a revision; no documents is the heartbeat."""

    epoch: str
    revision: int
    reset: bool
    more: bool
    now: str
    tenant_id: str
    log_key: str
    documents: list[SetDocument]

    example: ClassVar[dict[str, Any]] = {
        "epoch": "0194bd6e7c007a1b",
        "revision": 42,
        "reset": False,
        "more": False,
        "now": _NOW,
        "tenant_id": "default",
        "log_key": "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw=",
        "documents": [
            {"name": "agent/agt_loans", "revision": 42, "digest": None, "body": None},
        ],
    }


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """A session as it stands; its owner is whoever claimed it first."""

    session_id: str
    state: Literal["active", "expired", "revoked"]
    agent_role: str
    agent_id: str | None
    expires_at: str

    example: ClassVar[dict[str, Any]] = {
        "session_id": "s-77",
        "state": "active",
        "agent_role": "loan_underwriter",
        "agent_id": "agt_loans",
        "expires_at": "2026-02-01T12:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class Receipt:
    """What of a sidecar's spool is in the log, signed with the log's key."""

    source: str
    instance: str
    n: int
    hash: str
    signature: str

    example: ClassVar[dict[str, Any]] = {
        "source": "sidecar-1",
        "instance": "6f1d2a9c",
        "n": 127,
        "hash": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
        "signature": "A" * 86 + "==",
    }


@dataclass(frozen=True, slots=True)
class Alive:
    """The service answers; `version` is the software's."""

    status: Literal["ok"]
    version: str

    example: ClassVar[dict[str, Any]] = {"status": "ok", "version": "0.1.0"}
