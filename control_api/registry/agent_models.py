"""Defines the responses of the agent registry (`CONTRACT.md`, Agents)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from control_api.audit.stats_operations import OverTime, SourceCount
from control_api.registry.agent_queries import CredentialType, StoredAgent
from policies.definitions.model import AgentStatus

_NOW = "2026-01-31T12:00:00.000000Z"

ACTIVITY_WINDOW = 7 * 86_400_000_000
"""How far back an agent's activity and deny rates reach, in microseconds."""


@dataclass(frozen=True, slots=True)
class AgentResponse:
    """An agent's registry entry (`CONTRACT.md`, Agents)."""

    agent_id: str
    agent_role: str
    display_name: str | None
    description: str | None
    owner: str | None
    framework: str | None
    permitted_roles: list[str]
    credential_type: CredentialType
    bound_key_id: str | None
    workload: str | None
    status: AgentStatus
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
        "workload": "https://kubernetes.default.svc:system:serviceaccount:lending:loans",
        "status": "draft",
        "created_at": _NOW,
        "updated_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class Activity:
    """An agent's activity during the last 7 days; `deny_rate` is from 0 to 1."""

    total: int
    allowed: int
    denied: int
    deny_rate: float
    last_active: str | None
    sources: list[SourceCount]
    over_time: OverTime

    example: ClassVar[dict[str, Any]] = {
        "total": 17,
        "allowed": 14,
        "denied": 3,
        "deny_rate": 0.176,
        "last_active": _NOW,
        "sources": [SourceCount.example],
        "over_time": OverTime.example,
    }


@dataclass(frozen=True, slots=True)
class AgentDetail(AgentResponse):
    """An agent's registry entry and its recent activity."""

    activity: Activity

    example: ClassVar[dict[str, Any]] = {**AgentResponse.example, "activity": Activity.example}


@dataclass(frozen=True, slots=True)
class RegistryCounts:
    """The registry in numbers. `pending` is another name for `pending_approval`. The rates cover
    the last 7 days, and only agents that made a request."""

    total: int
    draft: int
    pending_approval: int
    approved: int
    suspended: int
    deprecated: int
    pending: int
    deny_rate: float
    deny_rates: dict[str, float]

    example: ClassVar[dict[str, Any]] = {
        "total": 4,
        "draft": 1,
        "pending_approval": 1,
        "approved": 2,
        "suspended": 0,
        "deprecated": 0,
        "pending": 1,
        "deny_rate": 0.176,
        "deny_rates": {"agt_loans": 0.176},
    }


def shown_agent(agent: StoredAgent) -> AgentResponse:
    return AgentResponse(**agent.shown())
