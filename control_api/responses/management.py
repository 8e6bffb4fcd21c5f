"""Responses about policies, guardrails and retention settings (`service.md` 2.1, contract section
4)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from policies.definitions.model import Sensitivity

_NOW = "2026-01-31T12:00:00.000000Z"

PolicyChange = Literal["created", "added", "updated", "deleted", "removed", "restored"]


@dataclass(frozen=True, slots=True)
class PolicyFields:
    """The fields of a policy that a request sets (2.1)."""

    name: str
    agent_role: str
    allowed_sources: list[str]
    denied_sources: list[str]
    max_sensitivity: Sensitivity
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
    """A policy (2.1) with its id, version and times (contract, section 4)."""

    policy_id: str
    version: int
    name: str
    agent_role: str
    allowed_sources: list[str]
    denied_sources: list[str]
    max_sensitivity: Sensitivity
    allowed_tasks: list[str]
    denied_tasks: list[str]
    session_ttl_minutes: int | None
    permitted_agent_ids: list[str]
    industry: str | None
    process_group: str | None
    user_modified: bool
    file: str | None
    changed_by: str
    created_at: str
    updated_at: str

    example: ClassVar[dict[str, Any]] = {
        "policy_id": "pol_5dK1yHsV9nE3rJx6MqT2bU",
        "version": 1,
        **PolicyFields.example,
        "user_modified": False,
        "file": "default/banking/lending.yaml",
        "changed_by": "disk",
        "created_at": _NOW,
        "updated_at": _NOW,
    }
    with_headers: ClassVar[dict[str, str]] = {"ETag": "the version, for `If-Match`"}

    def headers(self) -> dict[str, str]:
        return {"ETag": f'"{self.version}"'}


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A version of a policy, and who made it how."""

    version: int
    policy: PolicyFields
    changed_by: str
    changed_at: str
    change: PolicyChange

    example: ClassVar[dict[str, Any]] = {
        "version": 1,
        "policy": PolicyFields.example,
        "changed_by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "changed_at": _NOW,
        "change": "created",
    }


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The tenant's policy files. If `refused_at` is set, they were refused when they were last
    read, for `faults`, and the policies from before stay in force."""

    watched: bool
    refused_at: str | None
    faults: list[str]

    example: ClassVar[dict[str, Any]] = {
        "watched": True,
        "refused_at": _NOW,
        "faults": ["default/demo/support.yaml:3: agent_rol: is not a key of a policy"],
    }


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What reloading the policy files changed, by policy name. `warnings` lists folders that
    belong to no tenant and have a name close to this tenant's."""

    status: Literal["reloaded"]
    added: list[str]
    updated: list[str]
    unchanged: list[str]
    removed: list[str]
    skipped: list[str]
    warnings: list[str]

    example: ClassVar[dict[str, Any]] = {
        "status": "reloaded",
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "unchanged": [],
        "removed": [],
        "skipped": [],
        "warnings": [],
    }


@dataclass(frozen=True, slots=True)
class DescribedRequests:
    """The requests that a guardrail is about. A member that is null means all."""

    roles: list[str] | None
    except_roles: list[str] | None
    agents: list[str] | None
    sources: list[str] | None
    levels: list[Sensitivity] | None
    tasks: list[str] | None


@dataclass(frozen=True, slots=True)
class GuardrailShown:
    """What must hold whatever a policy says. One of `never` and `always` is null. `file` is the
    file that defines it, if its source is one."""

    name: str
    never: DescribedRequests | None
    always: DescribedRequests | None
    source: Literal["file", "api"]
    file: str | None
    created_at: str
    updated_at: str

    example: ClassVar[dict[str, Any]] = {
        "name": "payroll-is-hr-only",
        "never": {
            "roles": None,
            "except_roles": ["hr_analyst"],
            "agents": None,
            "sources": ["payroll*", "salaries"],
            "levels": None,
            "tasks": None,
        },
        "always": None,
        "source": "api",
        "file": None,
        "created_at": _NOW,
        "updated_at": _NOW,
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
        "the oldest first; the rest still verifies, from the anchor on",
        "session_policy": "sessions that expired or were revoked more than 90 days ago are "
        "removed every hour; their ids are never used again",
    }
