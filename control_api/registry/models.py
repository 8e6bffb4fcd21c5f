"""Defines the responses of the agent registry (`CONTRACT.md`, Agents), and the fields of an API key
in requests and responses (`CONTRACT.md`, Keys).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.audit.event_operations import OverTime, SourceCount
from control_api.edge.answers import time_or_none
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    IDEMPOTENCY_HEADER,
    IdempotencyKey,
    Identifier,
    RequestModel,
    Roles,
)
from control_api.registry.queries import CredentialType, StoredAgent
from control_api.store.queries.key_rows import StoredKey
from policies.definitions.model import AgentStatus, Scope
from policies.ground.canonical import rfc3339
from policies.ground.errors import invalid

_NOW = "2026-01-31T12:00:00.000000Z"

ACTIVITY_WINDOW = 7 * 86_400_000_000
"""The time that an agent's activity and deny rates cover, in microseconds."""


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
    status: Annotated[
        AgentStatus, says("The agent's status. Only an `approved` agent may evaluate.")
    ]
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
    sources: Annotated[list[SourceCount], says("The sources that the agent requested most.")]
    over_time: Annotated[OverTime, says("The decisions of the 7 days, in spans of 4 hours.")]

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

    activity: Annotated[Activity, says("The agent's activity during the last 7 days.")]

    example: ClassVar[dict[str, Any]] = {**AgentResponse.example, "activity": Activity.example}


@dataclass(frozen=True, slots=True)
class RegistryCounts:
    """The registry in numbers. `pending` is another name for `pending_approval`. The rates cover
    the last 7 days, and only agents that made a request."""

    total: Annotated[int, says("Registered agents.")]
    draft: Annotated[int, says("Agents with the status `draft`.")]
    pending_approval: Annotated[int, says("Agents with the status `pending_approval`.")]
    approved: Annotated[int, says("Agents with the status `approved`.")]
    suspended: Annotated[int, says("Agents with the status `suspended`.")]
    deprecated: Annotated[int, says("Agents with the status `deprecated`.")]
    pending: Annotated[int, says("The same number as `pending_approval`.")]
    deny_rate: float
    deny_rates: Annotated[
        dict[str, float],
        says("For each agent, the share of its events that were denied, from 0 to 1."),
    ]

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


KEY_NAME = says("The key's display name.")
SPOKEN_FOR = says(
    "The agents that a key of scope `sidecar` speaks for, with the wildcards `*` and `?`; "
    "`absent` is a call without one. `null` for other scopes."
)


@dataclass(frozen=True, slots=True)
class ListedKey:
    """An API key without its secret (`CONTRACT.md`, Keys)."""

    key_id: str
    name: Annotated[str, KEY_NAME]
    scope: Scope
    bound_agent_id: str | None
    permitted_roles: list[str]
    expires_at: str | None
    created_at: str
    agent_ids: Annotated[list[str] | None, SPOKEN_FOR]
    sidecar_ids: list[str] | None

    example: ClassVar[dict[str, Any]] = {
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "name": "underwriting agents",
        "scope": "evaluate",
        "bound_agent_id": None,
        "permitted_roles": [],
        "expires_at": "2027-01-31T12:00:00.000000Z",
        "created_at": _NOW,
        "agent_ids": None,
        "sidecar_ids": None,
    }


@dataclass(frozen=True, slots=True)
class ShownKey(ListedKey):
    """One API key without its secret. `sidecars` are the ids that it is used under, at most 100."""

    sidecars: Annotated[list[str], says("The sidecar ids that the key is used under, at most 100.")]

    example: ClassVar[dict[str, Any]] = {**ListedKey.example, "sidecars": []}


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new API key with its secret, shown only once (`CONTRACT.md`, Keys)."""

    key_id: str
    name: Annotated[str, KEY_NAME]
    key: Annotated[str, says("The key itself. Shown only in this response.")]
    scope: Scope
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


DEFAULT_DAYS = 365

AgentPatterns = Annotated[list[Identifier], Field(min_length=1, max_length=256)]
"""The agents that a sidecar's key may speak for, with the wildcards `*` and `?`."""
SidecarPatterns = Annotated[list[Identifier], Field(min_length=1, max_length=256)]
"""The sidecar ids that a sidecar's key may be used under, with the wildcards `*` and `?`."""


class KeyRequest(RequestModel):
    """A request about one API key, which the path names by its id."""

    key_id: Identifier


class NewKey(RequestModel):
    """The key to create (`CONTRACT.md`, Keys)."""

    example: ClassVar[dict[str, Any]] = {"name": "underwriting agents", "scope": "evaluate"}

    in_header: ClassVar[Mapping[str, str]] = {"idempotency_key": IDEMPOTENCY_HEADER}

    name: Annotated[Identifier, KEY_NAME]
    scope: Scope
    expires_days: int | None = Field(
        DEFAULT_DAYS,
        ge=1,
        le=3650,
        description="Days until the key expires. `null` for a key that never expires. The default "
        "is 365, or never for a key of scope `sidecar`.",
    )
    bound_agent_id: Identifier | None = None
    permitted_roles: Roles | None = None
    agent_ids: Annotated[AgentPatterns | None, SPOKEN_FOR] = None
    sidecar_ids: SidecarPatterns | None = None
    idempotency_key: IdempotencyKey | None = None

    @property
    def sidecar_agent_ids(self) -> tuple[str, ...] | None:
        """The agents that the key may speak for: those in the request, else the one that the key is
        bound to. None if the scope is not `sidecar`. Raises `Invalid` if a sidecar's key would have
        no agents, or another key has some."""
        if self.scope != "sidecar":
            patterns = {"agent_ids": self.agent_ids, "sidecar_ids": self.sidecar_ids}
            if refused := [name for name, value in patterns.items() if value is not None]:
                raise invalid([f"{name}: only a key of scope `sidecar` has it" for name in refused])
            return None
        if self.agent_ids is not None:
            return tuple(self.agent_ids)
        if self.bound_agent_id is not None:
            return (self.bound_agent_id,)
        raise invalid(
            ['agent_ids: is required for a key of scope `sidecar`; `["*"]` is every agent']
        )

    @property
    def days(self) -> int | None:
        """The key's lifetime in days, or None if it never expires."""
        # A sidecar's key expires only if the request says so. Otherwise a fleet would fall silent a
        # year after it was set up.
        defaulted = "expires_days" not in self.model_fields_set
        return None if defaulted and self.scope == "sidecar" else self.expires_days


def created_key(key: StoredKey, secret: str) -> CreatedKey:
    expires_at, created_at = time_or_none(key.expires_at), rfc3339(key.created_at)
    return CreatedKey(key.key_id, key.name, secret, key.scope, expires_at, created_at)


def listed_key(key: StoredKey) -> ListedKey:
    return ListedKey(
        **{name: getattr(key, name) for name in ("key_id", "name", "scope", "bound_agent_id")},
        permitted_roles=list(key.permitted_roles),
        expires_at=time_or_none(key.expires_at),
        created_at=rfc3339(key.created_at),
        agent_ids=key.shown_patterns(key.agent_ids),
        sidecar_ids=key.shown_patterns(key.sidecar_ids),
    )
