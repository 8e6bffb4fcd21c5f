"""Determines the host under which the console answers. Parses the settings of the identity provider
that people sign in with, and of the access that its groups have. Fetches nothing.

Browsers send a host's cookies to all its ports. At 127.0.0.1, any local server that a person
visits, even an agent's, would get the console's session. So the console has a host of its own: that
of SLUICE_CONSOLE_URL, or else a name that no other program on this machine knows,
`<random>.localhost`, which browsers resolve to loopback (RFC 6761, 6.3).

The file with certificate authorities is checked by loading it. The setting of what groups may do
has this form:

    <group>=<scope>@<tenant>, <group>=superadmin, …
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from policies.ground.addresses import ListenAddress
from policies.ground.canonical import identifier_fault
from policies.ground.distribution import how_to_install
from policies.ground.process import secret_file

FILE = "console-host"
_NAME = re.compile(rb"([0-9a-f]{32}\.localhost)\n").fullmatch


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """The address of the console. `public` is SLUICE_CONSOLE_URL, or None without it; `host` is the
    only host under which the console answers, or None if it has none yet; `url` is where browsers
    find the console, empty if that is not known."""

    public: str | None
    host: str | None
    url: str

    @classmethod
    def given(cls, public: str) -> ConsoleAddress:
        return cls(public, urlsplit(public).hostname, public)

    @classmethod
    def own(
        cls, data_dir: Path, listen: ListenAddress, entropy: Callable[[int], bytes]
    ) -> ConsoleAddress:
        """Return the address under a private host name, by plain HTTP. The name is made at the
        first start and kept in `data_dir`. Raise `UnusableFile` if it can't be read or written."""
        host = _kept_name(data_dir / FILE, entropy)
        # Port 0 lets the system choose, which is not known yet.
        return cls(None, host, f"http://{host}:{listen.port}" if listen.port else "")

    @classmethod
    def missing(cls) -> ConsoleAddress:
        """Return the value that stands for no address. With TLS, the certificate says which host
        names are right, and only the operator knows which of them no other server uses."""
        return cls(None, None, "")


def _kept_name(path: Path, entropy: Callable[[int], bytes]) -> str:
    kept = _NAME(secret_file.read(path) or b"")
    if kept is not None:
        return kept[1].decode()
    made = f"{entropy(16).hex()}.localhost"
    # A damaged file is replaced: sessions of the former name end, and nothing else depends on it.
    secret_file.write(path, f"{made}\n".encode())
    return made


# An origin (RFC 6454, section 6.2): browsers send it in lower case, without a path.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z")


def parse_origin(text: str) -> str:
    """Parse an origin, and return it as browsers send it. Raise `ValueError` if the text is not an
    origin alone."""
    origin = text.removesuffix("/").lower()
    if not _ORIGIN.match(origin):
        raise ValueError(f"`{text}` is not an address like https://sluice.example")
    return origin


SUPERADMIN = "superadmin"
STRENGTH = {"read": 0, "admin": 1}
"""The scopes that a person may have in a tenant, ordered by strength. The other scopes are for
programs: agents evaluate, and sidecars enforce."""


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """The access that the setting gives to a group: `scope` in `tenant_id`, or everything, as
    superadmin, if `tenant_id` is None."""

    group: str
    scope: str
    tenant_id: str | None


@dataclass(frozen=True, slots=True)
class GroupGrants:
    """The access of all groups. A person may be in several groups, and a group may have several
    grants."""

    grants: tuple[GroupGrant, ...] = ()

    def strongest(self, groups: Collection[str]) -> tuple[GroupGrant, ...]:
        """Return the grants of a person in these groups: for each tenant, and for the superadmin,
        the one with the strongest scope. Of equally strong ones, the first in the setting
        counts."""
        found: dict[str | None, GroupGrant] = {}
        for each in self.grants:
            if each.group not in groups:
                continue
            before = found.get(each.tenant_id)
            strength = STRENGTH.get(each.scope, 0)
            if before is None or strength > STRENGTH.get(before.scope, 0):
                found[each.tenant_id] = each
        return tuple(found.values())


def parse_group_grants(text: str) -> GroupGrants:
    """Parse the setting of what groups may do. Raise `ValueError` with everything that is wrong."""
    faults: list[str] = []
    grants: list[GroupGrant] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        # The last `=`: the name of a group may hold one.
        group, equals, granted = (part.strip() for part in entry.rpartition("="))
        scope, at, tenant_id = granted.partition("@")
        grant = GroupGrant(group, scope, tenant_id if at else None)
        if not equals or not group or not (at or scope == SUPERADMIN):
            faults.append(f"`{entry}` is not `<group>=<scope>@<tenant>` or `<group>=superadmin`")
        elif at and scope not in STRENGTH:
            faults.append(f"`{entry}`: the scope must be {' or '.join(STRENGTH)}, not `{scope}`")
        elif at and (fault := identifier_fault(tenant_id)):
            faults.append(f"`{entry}`: the tenant {fault}")
        elif grant in grants:
            faults.append(f"`{entry}` is listed twice")
        grants.append(grant)
    if faults:
        raise ValueError("; ".join(faults))
    return GroupGrants(tuple(grants))


LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+\Z")  # RFC 6749, section 3.3
_MAX_ISSUER = 256
_PARTS = ("ISSUER", "CLIENT_ID", "CLIENT_SECRET", "SCOPES", "GROUPS_CLAIM", "GROUPS", "CA")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The settings of an identity provider, and of this service as its client. `client_secret` is
    None for a public client. `scopes` is empty if the service chooses them by what the provider
    supports. `repr` leaves out the secret."""

    issuer: str
    client_id: str
    client_secret: str | None = field(repr=False)
    redirect_uri: str
    scopes: tuple[str, ...]
    groups_claim: str
    groups: GroupGrants
    ca: Path | None

    @property
    def discovery_url(self) -> str:
        """The URL of the provider's metadata (OpenID Connect Discovery 1.0, section 4)."""
        return f"{self.issuer.removesuffix('/')}/.well-known/openid-configuration"


def parse_issuer(text: str) -> str:
    """Return the issuer as the provider writes it. Raise `ValueError` if it is not a URL that may
    be used."""
    if fault := address_fault(text):
        raise ValueError(f"`{text}` {fault}")
    if urlsplit(text).query or len(text) > _MAX_ISSUER:
        raise ValueError(f"`{text}` must have no query, and at most {_MAX_ISSUER} characters")
    return text


def parse_scopes(text: str) -> tuple[str, ...]:
    """Parse scopes, separated by blanks or commas. Raise `ValueError` if one is not valid, or
    `openid` is missing."""
    scopes = tuple(text.replace(",", " ").split())
    if "openid" not in scopes:
        raise ValueError("must name `openid`: without it the provider gives no ID token")
    for scope in scopes:
        if not _SCOPE.match(scope):
            raise ValueError(f"`{scope}` is not a scope")
    return scopes


def parse_authorities(text: str) -> Path:
    """Return the path of a PEM file with certificates. Raise `ValueError` if the file can't be
    loaded."""
    try:
        ssl.create_default_context(cafile=text)
    except OSError as error:  # `ssl.SSLError` is one
        reason = error.strerror or error
        raise ValueError(f"`{text}` can't be read as certificates: {reason}") from None
    return Path(text)


def provider_faults(text: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Yield what is missing if the identity provider is only half configured, as pairs of the
    setting and what is wrong. `text` returns the text of a setting, empty if it is absent."""
    if not any(text(f"OIDC_{part}") for part in _PARTS):
        return
    for name in ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_GROUPS", "CONSOLE_URL"):
        if not text(name):
            yield name, "is needed if any SLUICE_OIDC_ setting is set"
    # Authlib is an extra of the package (pyproject.toml).
    if find_spec("authlib") is None:
        yield "OIDC_ISSUER", f"needs Authlib; {how_to_install('oidc')}"


def address_fault(url: str) -> str | None:
    """Return what is wrong with a provider's URL, or None if it may be used."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if not host or parts.username is not None or parts.fragment:
        return "must be a URL without user and fragment"
    if not url.isascii() or not url.isprintable() or any(mark in url for mark in ' "<>\\^`{|}'):
        return "must be written in the characters of a URL"
    # Someone who can change what the provider says on its way signs in as anyone.
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        return "must begin with https://, or lead to this host"
    return None
