"""Defines the responses about the console's sessions and the links that begin one, and labels
browsers."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from control_api.edge.field_descriptions import says
from control_api.signin.queries import ConsoleScope, ConsoleSession, SignInMethod
from policies.ground.canonical import rfc3339


@dataclass(frozen=True, slots=True)
class ConsoleSessionResponse:
    """A session of the console. `person` is the name in the audit trail: a key's id, or the name
    that OpenID Connect gave. `granted_by` is the group that gave the scope."""

    session_id: str
    person: Annotated[
        str, says("The name in the audit trail: a key's id, or the one that OpenID Connect gave.")
    ]
    method: Annotated[
        SignInMethod, says("How the person signed in: `key`, `link` (one-time) or `oidc`.")
    ]
    scope: ConsoleScope
    issuer: Annotated[
        str | None,
        says("The OpenID Connect provider that the person signed in at. `null` otherwise."),
    ]
    subject: Annotated[
        str | None, says("The person's id at the OpenID Connect provider. `null` otherwise.")
    ]
    granted_by: Annotated[
        str | None, says("The group that gave the scope, by OpenID Connect. `null` otherwise.")
    ]
    browser: Annotated[str, says("A short label of the browser, such as `Firefox on Linux`.")]
    created_at: str
    seen_at: Annotated[str, says("The last request, exact to a minute (RFC 3339, UTC).")]
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

    url: Annotated[str, says("The link. Its code is in the fragment, and works once.")]
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
    """Return a short label such as `Firefox on Linux` for the value of a `User-Agent` header."""
    browser = next((name for mark, name in _BROWSERS if mark in user_agent), "another browser")
    system = next((f" on {name}" for mark, name in _SYSTEMS if mark in user_agent), "")
    return browser + system


def shown_console_session(session: ConsoleSession) -> ConsoleSessionResponse:
    fields = {name: getattr(session, name) for name in ConsoleSessionResponse.__slots__}
    times = {name: rfc3339(fields[name]) for name in ("created_at", "seen_at", "expires_at")}
    return ConsoleSessionResponse(**fields | times)
