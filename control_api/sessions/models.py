"""Defines the responses about sessions (`CONTRACT.md`, Sessions)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from control_api.edge.answers import time_or_none
from control_api.edge.field_descriptions import says
from control_api.store.counters.queries import CountedValue
from control_api.store.queries.session_rows import SessionRow
from policies.definitions.model import SessionState
from policies.ground.canonical import rfc3339

_NOW = "2026-01-31T12:00:00.000000Z"

ShownState = Annotated[SessionState, says("Whether the session is active, expired or revoked.")]


@dataclass(frozen=True, slots=True)
class SessionResponse:
    """A session (`CONTRACT.md`, Sessions)."""

    session_id: str
    agent_role: str
    status: ShownState
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
class SessionDetail(SessionResponse):
    """A session, its owner, and counts of what was decided in it."""

    agent_id: str | None
    user_id: str | None
    revoked_at: Annotated[
        str | None, says("When the session was revoked (RFC 3339, UTC). `null` if it was not.")
    ]
    revocation_reason: Annotated[
        str | None, says("Why the session was revoked. `null` if it was not.")
    ]
    events: int
    allowed: int
    denied: int
    last_active: str | None

    example: ClassVar[dict[str, Any]] = {
        **SessionResponse.example,
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
class Revoked:
    """The number of sessions that this request revoked, without those revoked before."""

    revoked: Annotated[int, says("How many sessions this request revoked.")]

    example: ClassVar[dict[str, Any]] = {"revoked": 17}


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """A session's current state and its owner, the agent that claimed it first."""

    session_id: str
    state: ShownState
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


def session_fields(row: SessionRow, now: int) -> dict[str, Any]:
    """Return the session's fields as `SessionResponse` has them. The status is as of `now`, in
    microseconds."""
    return {
        "session_id": row.session_id,
        "agent_role": row.agent_role,
        "status": row.state(now),
        "created_at": rfc3339(row.created_at),
        "expires_at": rfc3339(row.expires_at),
    }


def session_detail(row: SessionRow, counted: CountedValue, now: int) -> SessionDetail:
    return SessionDetail(
        **session_fields(row, now),
        **{name: getattr(row, name) for name in ("agent_id", "user_id", "revocation_reason")},
        revoked_at=time_or_none(row.revoked_at),
        events=counted.total,
        allowed=counted.allowed,
        denied=counted.denied,
        # The counter has 0 if no decision names the session.
        last_active=time_or_none(counted.last_ts or None),
    )
