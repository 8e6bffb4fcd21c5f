"""Responses about sessions and tenants (`service.md` 2.6, 2.9, contract section 4)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from policies.definitions.model import SessionState

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class SessionShown:
    """A session (2.6)."""

    session_id: str
    agent_role: str
    status: SessionState
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
    """A session, its owner, and counts of what was decided in it."""

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
    pii_masking: bool
    active: bool
    frozen_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "name": "acme",
        "created_at": _NOW,
        "require_agent_id": False,
        "pii_masking": False,
        "active": True,
        "frozen_at": None,
    }


@dataclass(frozen=True, slots=True)
class CreatedTenant:
    """A new tenant with its first admin key, shown only once (2.9)."""

    tenant_id: str
    admin_key: str

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "admin_key": "slc_" + "0" * 49,
    }


@dataclass(frozen=True, slots=True)
class TenantSettingsShown:
    """A tenant's own settings; a global setting of the service may switch more on."""

    tenant_id: str
    require_agent_id: bool
    pii_masking: bool

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "require_agent_id": True,
        "pii_masking": False,
    }


@dataclass(frozen=True, slots=True)
class Freeze:
    """Whether the tenant is frozen; `reason` and `frozen_at` are null if it is not."""

    frozen: bool
    reason: str | None
    frozen_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "frozen": True,
        "reason": "a leaked key reads contracts",
        "frozen_at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class Revoked:
    """How many sessions this request revoked, without those revoked before."""

    revoked: int

    example: ClassVar[dict[str, Any]] = {"revoked": 17}
