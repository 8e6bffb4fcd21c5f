"""Defines an attempt to sign in at an identity provider, and the person who signed in by it.

Everything that the browser brings back from the provider is derived from one secret, which only the
browser's cookie holds. The service stores nothing, so any process can finish an attempt that
another one began. The messages of a refusal are for the person and the log: they hold no code,
token or secret.
"""

import base64
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from policies.ground.errors import Forbidden, Unavailable

_SHOWN = 200


class SignInRefusal(StrEnum):
    """The reasons why a sign-in is refused."""

    state = "state"
    issuer = "issuer"
    provider = "provider"
    code = "code"
    id_token = "id_token"  # noqa: S105  # not one, but the name of what was refused
    groups = "groups"


class SignInRefused(Forbidden):
    """the sign-in is refused"""

    def __init__(self, reason: SignInRefusal, why: str, *, subject: str | None = None) -> None:
        self.reason = reason
        self.subject = subject
        super().__init__(f"not signed in: {why}")


class ProviderUnavailable(Unavailable):
    """the identity provider can't be used"""

    def __init__(self, why: str) -> None:
        super().__init__(f"the identity provider can't be used: {why}")


def shown(text: object) -> str:
    """Shorten a text from the provider for use in a message, and replace its control characters."""
    printable = "".join(c if c.isprintable() else " " for c in str(text)[:_SHOWN])
    return f"{printable}…" if len(str(text)) > _SHOWN else printable


PREFIX, _MARKS, _READABLE = "oidc:", "@._+-", 64
_DIGEST = 12  # 48 bits: the provider chooses subjects, not the person


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom the identity provider has authenticated. `name` is the result of `log_name`;
    `groups` are all of the person's groups, also those that grant nothing."""

    issuer: str
    subject: str
    name: str
    groups: frozenset[str]


def log_name(claims: Mapping[str, Any]) -> str:
    """Return the person's name for the log, such as `oidc:ann@example.com~0f3c5a7b9d1e`: a readable
    name, and a digest that tells people apart.

    A username can be given to another person, and some providers let people choose it. So the name
    ends in a digest of issuer and subject, which the provider never gives to a second person. No
    other name of an actor in the log begins with `oidc:`: neither a key id nor `disk`, `enrolment`,
    `system` and `superadmin`.
    """
    identity = f"{claims['iss']}\0{claims['sub']}".encode()
    digest = hashlib.sha256(identity).hexdigest()[:_DIGEST]
    return f"{PREFIX}{_readable(claims)}~{digest}"


def _readable(claims: Mapping[str, Any]) -> str:
    # An address that the provider has not verified may be anyone's.
    email = claims.get("email") if claims.get("email_verified") is True else None
    found = email or claims.get("preferred_username")
    if not isinstance(found, str):
        return ""
    text = unicodedata.normalize("NFKC", found)[:_READABLE]
    return "".join(c if c.isalnum() or c in _MARKS else "_" for c in text)


def groups_of(claims: Mapping[str, Any], name: str) -> frozenset[str] | None:
    """Return the groups in the claim `name`, or None if there is no such claim. Raise
    `SignInRefused` if the claim is not a list of groups, or if the groups are not in the token."""
    if name in claims:
        value = claims[name]
        listed = [value] if isinstance(value, str) else value
        if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
            return frozenset(listed)
        raise SignInRefused(
            SignInRefusal.groups, f"the provider's claim `{name}` is not a list of groups"
        )
    # Entra ID leaves the claim out if a person has more than 200 groups, and says so like this.
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, dict) and name in elsewhere:
        raise SignInRefused(
            SignInRefusal.groups,
            f"you are in too many groups for the provider's claim `{name}`: have it list only the "
            "groups that are assigned to this application",
        )
    return None


_SECRET_BYTES = 32
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}\Z")
MAX_SECONDS = 600
"""The most seconds that a person may take at the provider."""
_MAX_COOKIE = 2048


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to sign in at the identity provider. `secret` has 43 characters; `repr` leaves it
    out, because the values below can be derived from it. `to` is the page to show after the
    sign-in, and `realm` the tenant's id or the superadmin's realm, if the person has chosen one.
    Both come back from the browser, so check them again before they are used."""

    secret: str = field(repr=False)
    to: str = ""
    realm: str = ""

    @classmethod
    def new(cls, entropy: Callable[[int], bytes], to: str = "", realm: str = "") -> "Attempt":
        return cls(_encoded(entropy(_SECRET_BYTES)), to, realm)

    @classmethod
    def from_cookie(cls, value: str | None) -> "Attempt | None":
        """Return the attempt that this browser began, read from its cookie. None if the cookie is
        missing or not ours."""
        if value is None or len(value) > _MAX_COOKIE:
            return None
        secret, *rest = value.split(".")
        try:
            to, realm = (_decoded(part) for part in rest)
        except ValueError:
            return None
        return cls(secret, to, realm) if _SECRET.match(secret) else None

    def to_cookie(self) -> str:
        """Return the value of the cookie, in characters that need no quotes."""
        to, realm = _encoded(self.to.encode()), _encoded(self.realm.encode())
        value = f"{self.secret}.{to}.{realm}"
        # Without the page to go on to rather than refused by the browser for its size.
        return value if len(value) <= _MAX_COOKIE else f"{self.secret}.."

    @property
    def state(self) -> str:
        """The OAuth `state`, which ties the provider's answer to this browser: another browser's
        cookie gives another value."""
        return self._derived(b"state")

    @property
    def nonce(self) -> str:
        """The `nonce`, which ties the ID token to this attempt."""
        return self._derived(b"nonce")

    @property
    def verifier(self) -> str:
        """The PKCE code verifier, which ties the code to this attempt (RFC 7636): the provider has
        seen only its SHA-256."""
        return self._derived(b"verifier")

    def _derived(self, purpose: bytes) -> str:
        return _encoded(hmac.digest(self.secret.encode(), purpose, hashlib.sha256))


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> str:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
