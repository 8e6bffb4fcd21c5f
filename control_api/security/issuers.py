"""Parses `SLUICE_ENROL_ISSUERS`, which lists the issuers whose ServiceAccount tokens enrol
sidecars.

    <issuer>=<JWKS URL or file>[,tenant=<id>][,ca=<file>][,token_file=<file>]; <issuer>=…

Loads the files that the setting names, once. Fetches nothing.
"""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from policies.ground.canonical import identifier_fault

SEPARATOR = ";"
"""The separator between issuers. A comma separates the options of an issuer; neither character is
usual in the URL of a key set."""
DEFAULT_TENANT = "default"
MAX_ISSUER = 256
_OPTIONS = ("tenant", "ca", "token_file")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Issuer:
    """A cluster that issues ServiceAccount tokens. `issuer` is compared with the token's `iss` byte
    for byte; `keys` is the URL or file of its key set. `ca` holds the certificate authorities that
    are trusted for that URL instead of the system's, and `token_file` a bearer token for it."""

    issuer: str
    keys: str
    tenant_id: str = DEFAULT_TENANT
    ca: Path | None = None
    token_file: Path | None = None

    @property
    def file(self) -> Path | None:
        """The file that holds the key set, or None if the key set is fetched from a URL."""
        return None if "://" in self.keys else Path(self.keys)


class IssuerFaults(ValueError):
    """some of the issuers can't be used; `faults` has a line for each reason"""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def parse_issuers(text: str) -> tuple[Issuer, ...]:
    """Parse the setting. Raise `IssuerFaults` with everything that is wrong."""
    faults: list[str] = []
    issuers: list[Issuer] = []
    for entry in filter(None, (part.strip() for part in text.split(SEPARATOR))):
        issuer, found = _parse(entry)
        faults += found
        if any(issuer.issuer == each.issuer for each in issuers):
            # Which of the two tenants an enrolling pod got would depend on their order.
            faults.append(f"issuer `{issuer.issuer}` is listed twice")
        issuers.append(issuer)
    if faults:
        raise IssuerFaults(faults)
    return tuple(issuers)


def _parse(entry: str) -> tuple[Issuer, list[str]]:
    name, equals, rest = entry.partition("=")
    keys, *options = (part.strip() for part in rest.split(","))
    issuer, faults = name.strip(), []
    if not equals or not issuer or not keys:
        faults.append(f"`{entry}` is not `<issuer>=<JWKS URL or file>`")
        return Issuer(issuer, keys), faults
    if len(issuer) > MAX_ISSUER or not issuer.isascii() or not issuer.isprintable():
        faults.append(f"issuer `{issuer}` must be at most {MAX_ISSUER} printable ASCII characters")
    values: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if key not in _OPTIONS or not value:
            named = ", ".join(f"`{name}=…`" for name in _OPTIONS)
            faults.append(f"`{option}` of issuer `{issuer}` is not one of {named}")
        elif key in values:
            faults.append(f"issuer `{issuer}` has two options `{key}`")
        values[key] = value
    made = Issuer(
        issuer,
        keys,
        values.get("tenant", DEFAULT_TENANT),
        Path(values["ca"]) if "ca" in values else None,
        Path(values["token_file"]) if "token_file" in values else None,
    )
    return made, [*faults, *(f"issuer `{issuer}`: {fault}" for fault in _faults(made))]


def _faults(issuer: Issuer) -> Iterator[str]:
    if fault := identifier_fault(issuer.tenant_id):
        yield f"the tenant {fault}"
    if issuer.file is not None:
        if not issuer.file.is_file():
            yield f"`{issuer.file}` is not a file"
        if issuer.ca or issuer.token_file:
            yield "`ca` and `token_file` are for a key set that is fetched"
        return
    yield from _address_faults(issuer)
    if issuer.ca is not None and (fault := _ca_fault(issuer.ca)):
        yield f"`{issuer.ca}` {fault}"
    if issuer.token_file is not None and not issuer.token_file.is_file():
        yield f"`{issuer.token_file}` is not a file"


def _address_faults(issuer: Issuer) -> Iterator[str]:
    try:
        parts = urlsplit(issuer.keys)
        host, _ = parts.hostname, parts.port
    except ValueError:
        yield "the address of the key set is not a URL"
        return
    if parts.username is not None or parts.fragment or not host:
        yield "the address of the key set must be a URL without user and fragment"
    # An attacker who changes the key set on its way enrols as any agent.
    elif parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        yield "the key set must be fetched over https://, or from this host"
    elif parts.scheme == "http" and (issuer.ca or issuer.token_file):
        yield "`ca` and `token_file` are for an address that begins with https://"


def _ca_fault(path: Path) -> str | None:
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # `ssl.SSLError` is one
        return f"can't be read as certificates: {error.strerror or error}"
    return None
