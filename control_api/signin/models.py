"""Defines the responses about the console's sessions and the links that begin one, and labels
browsers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from control_api.signin.queries import ConsoleScope, ConsoleSession, SignInMethod
from policies.ground.canonical import rfc3339


@dataclass(frozen=True, slots=True)
class ConsoleSessionResponse:
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


_BROWSERS = (
    # Most browsers also claim to be those further down.
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrom", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iOS"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_label(user_agent: str) -> str:
    """`Firefox on Linux`, for a header `User-Agent`."""
    browser = _first(_BROWSERS, user_agent, "another browser")
    system = _first(_SYSTEMS, user_agent, "")
    return f"{browser} on {system}" if system else browser


def _first(names: tuple[tuple[str, str], ...], text: str, default: str) -> str:
    return next((label for part, label in names if part in text), default)


def shown_console_session(session: ConsoleSession) -> ConsoleSessionResponse:
    return ConsoleSessionResponse(
        session_id=session.session_id,
        person=session.person,
        method=session.method,
        scope=session.scope,
        issuer=session.issuer,
        subject=session.subject,
        granted_by=session.granted_by,
        browser=session.browser,
        created_at=rfc3339(session.created_at),
        seen_at=rfc3339(session.seen_at),
        expires_at=rfc3339(session.expires_at),
    )
