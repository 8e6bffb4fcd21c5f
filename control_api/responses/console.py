"""Responses about the console: its sessions, and the links that begin one."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

SignInMethod = Literal["key", "link", "oidc"]
ConsoleScope = Literal["read", "admin", "superadmin"]
"""The scopes that may sign in. Keys of agents and sidecars are for programs."""


@dataclass(frozen=True, slots=True)
class ConsoleSessionShown:
    """A session of the console. `person` is the name in the audit trail: a key's id, or the name
    that OpenID Connect gave. `granted_by` is the group that gave the scope."""

    session_id: str
    person: str
    method: SignInMethod
    scope: ConsoleScope
    issuer: str | None
    subject: str | None
    granted_by: str | None
    browser: str
    created_at: str
    seen_at: str
    expires_at: str

    example: ClassVar[dict[str, Any]] = {
        "session_id": "ses_3nB7xGvQ2mT5kWc8LpR0aZ",
        "person": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "method": "key",
        "scope": "admin",
        "issuer": None,
        "subject": None,
        "granted_by": None,
        "browser": "Firefox on Linux",
        "created_at": "2026-01-31T12:00:00.000000Z",
        "seen_at": "2026-01-31T12:00:00.000000Z",
        "expires_at": "2026-02-01T00:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class CreatedSignInLink:
    """A link that signs one browser in to the console, once. `url` begins with the console's public
    address if that is set, otherwise with `/`."""

    url: str
    expires_at: str

    example: ClassVar[dict[str, Any]] = {
        "url": "/console/sign-in#code=default.3nB7xGvQ2mT5kWc8LpR0aZ3nB7xGvQ2mT5kWc8LpR0a",
        "expires_at": "2026-01-31T12:10:00.000000Z",
    }
