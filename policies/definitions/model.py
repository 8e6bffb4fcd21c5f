"""The data types from which a decision is made: policy, agent, key, session, candidate, and a
tenant's settings.

Knows their fields (`CONTRACT.md`) and their wire form, but not how they are stored or compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from policies.definitions.wildcard import Matcher, matcher
from policies.ground.canonical import encode, identifier_fault

Sensitivity = Literal["low", "medium", "high", "critical"]
"""A sensitivity level; the levels ascend from `low` to `critical` (`CONTRACT.md`, Evaluation)."""
SENSITIVITIES: tuple[Sensitivity, ...] = get_args(Sensitivity)

RANK: dict[str, int] = {name: rank for rank, name in enumerate(SENSITIVITIES)}

AgentStatus = Literal["draft", "pending_approval", "approved", "suspended", "deprecated"]
AGENT_STATUSES: tuple[AgentStatus, ...] = get_args(AgentStatus)

Scope = Literal["evaluate", "read", "admin", "sidecar"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The scopes that a tenant's key may have. The superadmin's key belongs to no tenant and is in no
list."""

NO_AGENT = "absent"
"""The entry in a key's `agent_ids` that stands for calls that name no agent."""

SessionState = Literal["active", "expired", "revoked"]


def _members(document: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the named fields of `document` as a dict. Tuples become lists: JSON has no tuples, and
    readers compare the values with lists."""
    members = {name: getattr(document, name) for name in names}
    return {name: list(v) if type(v) is tuple else v for name, v in members.items()}


@lru_cache(maxsize=256)
def _matcher(patterns: tuple[str, ...]) -> Matcher:
    return matcher(patterns)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy (`CONTRACT.md`, Policies), with the id and the version that a decision cites."""

    policy_id: str
    version: int
    name: str
    agent_role: str
    allowed_sources: tuple[str, ...]
    denied_sources: tuple[str, ...]
    max_sensitivity: Sensitivity
    allowed_tasks: tuple[str, ...] = ()
    denied_tasks: tuple[str, ...] = ()
    session_ttl_minutes: int | None = None
    permitted_agent_ids: tuple[str, ...] = ()
    industry: str | None = None
    process_group: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the policy as a JSON object, with its `policy_id` and `version`."""
        return _members(self, self.__slots__)

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> "Policy":
        """Parse a policy in the form that `to_wire` returns. An optional list that is absent or
        null becomes empty."""
        return cls(
            policy_id=wire["policy_id"],
            version=wire["version"],
            name=wire["name"],
            agent_role=wire["agent_role"],
            allowed_sources=tuple(wire["allowed_sources"]),
            max_sensitivity=wire["max_sensitivity"],
            # These fields are optional (`CONTRACT.md`, Policies): a document may leave them out.
            denied_sources=tuple(wire.get("denied_sources") or ()),
            allowed_tasks=tuple(wire.get("allowed_tasks") or ()),
            denied_tasks=tuple(wire.get("denied_tasks") or ()),
            session_ttl_minutes=wire.get("session_ttl_minutes"),
            permitted_agent_ids=tuple(wire.get("permitted_agent_ids") or ()),
            industry=wire.get("industry"),
            process_group=wire.get("process_group"),
        )


@dataclass(frozen=True, slots=True)
class Agent:
    """The part of an agent's registry entry that a decision needs. `permitted_roles` is never
    empty: the publisher fills in the registry's default, `[agent_role]`, and puts that role first
    if it is permitted. `wire` holds the entry in canonical bytes, encoded once because every
    decision on this agent cites them."""

    agent_id: str
    status: AgentStatus
    permitted_roles: tuple[str, ...]
    bound_key_id: str | None = None
    wire: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wire", encode(self.to_wire()))  # the class is frozen

    def to_wire(self) -> dict[str, Any]:
        return _members(self, self.__slots__[:-1])  # all but `wire` itself

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> "Agent":
        return cls(
            wire["agent_id"], wire["status"], tuple(wire["permitted_roles"]), wire["bound_key_id"]
        )


@dataclass(frozen=True, slots=True)
class Key:
    """The part of an API key's entry that a decision needs; never the secret. `expires_at` is in
    microseconds since 1970 UTC, None for a key that never expires. `digest` is the SHA-256 under
    which a policy set has the key, empty for a key that is not from there. `wire` is as in `Agent`.

    Only a key of scope `sidecar` has `agent_ids` and `sidecar_ids`, which may use the wildcards `*`
    and `?`. `agent_ids` is None for a key that was made before keys had this list: it may speak for
    every agent, and as every sidecar. With `agent_ids`, `sidecar_ids` is None for a key that may
    speak as any sidecar whose id no other live key uses; the control API knows which ids those are.
    """

    key_id: str
    scope: Scope
    bound_agent_id: str | None = None
    permitted_roles: tuple[str, ...] = ()
    expires_at: int | None = None
    agent_ids: tuple[str, ...] | None = None
    sidecar_ids: tuple[str, ...] | None = None
    digest: bytes = field(default=b"", repr=False, compare=False)
    wire: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wire", encode(self.to_wire()))

    def to_wire(self) -> dict[str, Any]:
        # A key without them keeps the bytes that it had before: records cite their digest.
        bound = self.__slots__[5:7] if self.agent_ids is not None else ()
        return _members(self, (*self.__slots__[:5], *bound))

    @classmethod
    def from_wire(cls, wire: dict[str, Any], digest: bytes = b"") -> "Key":
        agent_ids, sidecar_ids = wire.get("agent_ids"), wire.get("sidecar_ids")
        return cls(
            wire["key_id"],
            wire["scope"],
            wire["bound_agent_id"],
            tuple(wire["permitted_roles"]),
            wire["expires_at"],
            None if agent_ids is None else tuple(agent_ids),
            None if sidecar_ids is None else tuple(sidecar_ids),
            digest,
        )

    def may_speak_for_agent(self, agent_id: str | None) -> bool:
        """Return whether a sidecar with this key may decide, claim sessions and report for this
        agent. None stands for a call that names no agent, which the entries `*` and `absent`
        admit."""
        if self.agent_ids is None or "*" in self.agent_ids:
            return True
        if agent_id is None:
            return NO_AGENT in self.agent_ids
        return agent_id != NO_AGENT and _matcher(self.agent_ids)(agent_id)

    def may_speak_as_sidecar(self, sidecar_id: str) -> bool:
        """Return whether a sidecar with this key may use this sidecar id, as far as the key itself
        tells."""
        return self.sidecar_ids is None or _matcher(self.sidecar_ids)(sidecar_id)

    @property
    def names_sidecars(self) -> bool:
        """True if the key alone decides as which sidecars it may speak, without a look at other
        keys."""
        return self.agent_ids is None or self.sidecar_ids is not None

    def live(self, now: int) -> bool:
        """Return whether the key has not expired at `now`, in microseconds since 1970 UTC."""
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True)
class Session:
    """A session's state at the time of a decision, and the role and agent that own it."""

    session_id: str
    state: SessionState
    agent_role: str
    agent_id: str | None = None

    def to_wire(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "state": self.state,
            "agent_role": self.agent_role,
            "agent_id": self.agent_id,
        }


class Candidate(NamedTuple):
    """A policy set that is evaluated beside the active one, and never decides. `revision` is the
    active policy set's when the candidate was first listed."""

    name: str
    revision: int


MAX_CANDIDATES = 3
"""The most candidates that a tenant may have at once."""


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """A tenant's settings as a decision applies them. `require_agent_id` is true if the global
    setting or the tenant's is (`CONTRACT.md`, Tenants). `session_ttl_minutes` is the default where
    no policy of the role sets a limit. `frozen_at` is when the tenant was frozen, in microseconds
    since 1970 UTC; None if it is not (`CONTRACT.md`, Incident controls). `candidates` are in order
    of name."""

    tenant_id: str
    require_agent_id: bool = False
    session_ttl_minutes: int = 1440
    pii_masking: bool = False
    active: bool = True
    frozen_at: int | None = None
    candidates: tuple[Candidate, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        settings = {
            "require_agent_id": self.require_agent_id,
            "session_ttl_minutes": self.session_ttl_minutes,
            "pii_masking": self.pii_masking,
        }
        tenant: dict[str, Any] = {"tenant_id": self.tenant_id, "active": self.active}
        if self.candidates:
            # Absent without any: the document of a tenant without candidates keeps its bytes.
            tenant["candidates"] = [each._asdict() for each in self.candidates]
        if self.frozen_at is None:
            return tenant | settings
        # INVARIANT: a version from before freezes must not take this tenant for an unfrozen one.
        # It does not find the settings where it expects them: that raises an error, which denies.
        return tenant | {"frozen_at": self.frozen_at, "frozen": settings}

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> "TenantSettings":
        frozen = "frozen" in wire
        settings = wire["frozen"] if frozen else wire
        return cls(
            wire["tenant_id"],
            settings["require_agent_id"],
            settings["session_ttl_minutes"],
            settings["pii_masking"],
            wire.get("active", True),  # older documents lack it
            wire["frozen_at"] if frozen else None,
            _candidates(wire.get("candidates")),
        )


def _candidates(wire: object) -> tuple[Candidate, ...]:
    """Return the candidates in a tenant's document. A candidate in an unknown form is left out: a
    candidate must never be the reason why a decision fails, or why its record is refused."""
    found = (
        Candidate(each["name"], each["revision"])
        for each in (wire if isinstance(wire, list) else ())
        if isinstance(each, dict)
        and identifier_fault(each.get("name")) is None
        and type(each.get("revision")) is int
    )
    return tuple(islice(found, MAX_CANDIDATES))
