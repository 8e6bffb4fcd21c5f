"""What management answers with: keys, policies, agents (`service.md` 2.1 to 2.3); see `shapes`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from control_api.shapes import Level, SourceCount

_NOW = "2026-01-31T12:00:00.000000Z"

Status = Literal["draft", "pending_approval", "approved", "deprecated"]
TenantScope = Literal["evaluate", "read", "admin", "sidecar"]


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
class PolicyFields:
    """A policy as it was asked for (2.1)."""

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

    example: ClassVar[dict[str, Any]] = {
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
        **PolicyFields.example,
        "user_modified": False,
        "created_at": _NOW,
        "updated_at": _NOW,
    }
    with_headers: ClassVar[dict[str, str]] = {"ETag": "the version, for `If-Match`"}

    def headers(self) -> dict[str, str]:
        return {"ETag": f'"{self.version}"'}


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A version of a policy, and how it came about."""

    version: int
    policy: PolicyFields
    changed_by: str
    changed_at: str
    change: Literal["created", "added", "updated", "deleted", "removed", "restored"]

    example: ClassVar[dict[str, Any]] = {
        "version": 1,
        "policy": PolicyFields.example,
        "changed_by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "changed_at": _NOW,
        "change": "created",
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
class Activity:
    """What an agent did in the last seven days; `deny_rate` is a fraction from 0 to 1."""

    total: int
    allowed: int
    denied: int
    deny_rate: float
    last_active: str | None
    sources: list[SourceCount]

    example: ClassVar[dict[str, Any]] = {
        "total": 17,
        "allowed": 14,
        "denied": 3,
        "deny_rate": 0.176,
        "last_active": _NOW,
        "sources": [SourceCount.example],
    }


@dataclass(frozen=True, slots=True)
class AgentDetail(AgentShown):
    """A registry entry and what the agent did lately."""

    activity: Activity

    example: ClassVar[dict[str, Any]] = {**AgentShown.example, "activity": Activity.example}


@dataclass(frozen=True, slots=True)
class RegistryCounts:
    """The registry in numbers. `pending` is `pending_approval` by another name; the rates are of
    the last seven days, of the agents that asked for something."""

    total: int
    draft: int
    pending_approval: int
    approved: int
    deprecated: int
    pending: int
    deny_rate: float
    deny_rates: dict[str, float]

    example: ClassVar[dict[str, Any]] = {
        "total": 4,
        "draft": 1,
        "pending_approval": 1,
        "approved": 2,
        "deprecated": 0,
        "pending": 1,
        "deny_rate": 0.176,
        "deny_rates": {"agt_loans": 0.176},
    }


SessionStatus = Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class SessionShown:
    """A session (2.6)."""

    session_id: str
    agent_role: str
    status: SessionStatus
    created_at: str
    expires_at: str

    example: ClassVar[dict[str, Any]] = {
        "session_id": "s-77",
        "agent_role": "loan_underwriter",
        "status": "active",
        "created_at": _NOW,
        "expires_at": "2026-02-01T12:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class SessionDetail(SessionShown):
    """A session, whose it is, and what was decided in it."""

    agent_id: str | None
    user_id: str | None
    revoked_at: str | None
    revocation_reason: str | None
    events: int
    allowed: int
    denied: int
    last_active: str | None

    example: ClassVar[dict[str, Any]] = {
        **SessionShown.example,
        "agent_id": "agt_loans",
        "user_id": "u-1001",
        "revoked_at": None,
        "revocation_reason": None,
        "events": 17,
        "allowed": 14,
        "denied": 3,
        "last_active": _NOW,
    }


@dataclass(frozen=True, slots=True)
class TenantShown:
    """A tenant (2.9, contract section 4)."""

    tenant_id: str
    name: str
    created_at: str
    require_agent_id: bool
    active: bool

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "name": "acme",
        "created_at": _NOW,
        "require_agent_id": False,
        "active": True,
    }


@dataclass(frozen=True, slots=True)
class CreatedTenant:
    """A new tenant, with its first admin key, shown this once (2.9)."""

    tenant_id: str
    admin_key: str

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "admin_key": "slc_" + "0" * 49,
    }


@dataclass(frozen=True, slots=True)
class TenantSettingsShown:
    """What a tenant's settings are now; a global setting of the service may add to them."""

    tenant_id: str
    require_agent_id: bool
    pii_masking: bool

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "require_agent_id": True,
        "pii_masking": False,
    }


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long a tenant's audit events and sessions are kept, in days and in words (2.8)."""

    retention_days: int
    session_retention_days: int
    audit_policy: str
    session_policy: str

    example: ClassVar[dict[str, Any]] = {
        "retention_days": 365,
        "session_retention_days": 90,
        "audit_policy": "audit events recorded more than 365 days ago are removed every hour, "
        "the oldest first; what is left verifies from the anchor on",
        "session_policy": "sessions that expired or were revoked more than 90 days ago are "
        "removed every hour; their ids are never given out again",
    }
