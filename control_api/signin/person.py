"""Who signed in at an identity provider: the name that the log gives to a person, and the person's
groups; or why not.

The messages are for that person, and for the log: they hold no code, token or secret.
"""

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from policies.ground.errors import Forbidden, Unavailable

_SHOWN = 200


class Refusal(StrEnum):
    """What a sign-in was refused for."""

    state = "state"
    issuer = "issuer"
    provider = "provider"
    code = "code"
    id_token = "id_token"  # noqa: S105  # not one, but the name of what was refused
    groups = "groups"


class SignInRefused(Forbidden):
    """the sign-in is refused"""

    def __init__(self, reason: Refusal, why: str, *, subject: str | None = None) -> None:
        self.reason = reason
        self.subject = subject
        super().__init__(f"not signed in: {why}")


class ProviderUnavailable(Unavailable):
    """the identity provider can't be used"""

    def __init__(self, why: str) -> None:
        super().__init__(f"the identity provider can't be used: {why}")


def shown(text: object) -> str:
    """A text of the provider's for a message: short, and without control characters."""
    printable = "".join(c if c.isprintable() else " " for c in str(text)[:_SHOWN])
    return f"{printable}…" if len(str(text)) > _SHOWN else printable


PREFIX = "oidc:"


_READABLE = 64


_MARKS = "@._+-"


_DIGEST = 12  # 48 bits: the provider chooses subjects, not the person


@dataclass(frozen=True, slots=True)
class Person:
    """A person whom the provider vouches for. `name` is `log_name`; `groups` are all of the
    person's groups, also those that grant nothing."""

    issuer: str
    subject: str
    name: str
    groups: frozenset[str]


def log_name(claims: Mapping[str, Any]) -> str:
    """`oidc:ann@example.com~0f3c5a7b9d1e`: what people read, and what tells people apart.

    A username can be given to another person, and some providers let people choose it. So the name
    ends in a digest of issuer and subject, which the provider never gives to a second person. No
    key id, and none of `disk`, `enrolment`, `system` and `superadmin`, begins with `oidc:`.
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
    """The groups in the claim `name`; None if there is no such claim. Raises `SignInRefused`."""
    if name in claims:
        value = claims[name]
        listed = [value] if isinstance(value, str) else value
        if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
            return frozenset(listed)
        raise SignInRefused(
            Refusal.groups, f"the provider's claim `{name}` is not a list of groups"
        )
    # Entra ID leaves the claim out if a person has more than 200 groups, and says so like this.
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, dict) and name in elsewhere:
        raise SignInRefused(
            Refusal.groups,
            f"you are in too many groups for the provider's claim `{name}`: have it list only the "
            "groups that are assigned to this application",
        )
    return None
