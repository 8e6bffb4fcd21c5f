"""Decides which addresses the service itself may call: webhook receivers, the mail server, and the
witnesses of `SLUICE_WITNESSES`. Private, loopback and link-local addresses are refused unless the
operator lists them. Opens no socket."""

import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from policies.ground.addresses import ListenAddress
from policies.ground.public_addresses import Address, Network, refusal
from policies.trail.proofs.signed_note import COSIGNATURE, VerifierKey

MAX_WITNESSES = 16
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:/[A-Za-z0-9._~/\-]*)?\Z")


class WitnessAddress(NamedTuple):
    """A witness: the public key that verifies its cosignatures, and its URL without the path
    `/add-checkpoint`."""

    key: VerifierKey
    url: str

    @classmethod
    def parse(cls, text: str) -> "WitnessAddress":
        """Parse `<verifier key>@<url>`. Raise `ValueError` if it is not valid."""
        key, at, url = text.rpartition("@")
        if not at:
            raise ValueError(f"`{text[:200]}` is not `<verifier key>@<url>`")
        parsed = VerifierKey.parse(key)
        if parsed.type != COSIGNATURE:
            raise ValueError(f"`{parsed.name}` is the key of a log, not of a witness (type 4)")
        _check(url, parsed.name)
        return cls(parsed, url.rstrip("/"))


def parse_witnesses(text: str) -> tuple[WitnessAddress, ...]:
    """Parse `<verifier key>@<url>, …`. Raise `ValueError`, which names the bad entry."""
    found = tuple(WitnessAddress.parse(each.strip()) for each in text.split(",") if each.strip())
    if len({each.key.public for each in found}) != len(found):
        # One witness under two names must not count as two.
        raise ValueError("a key is listed twice: each witness counts once")
    if len(found) > MAX_WITNESSES:
        raise ValueError(f"lists {len(found)} witnesses; at most {MAX_WITNESSES} are asked")
    return found


def _check(url: str, name: str) -> None:
    # No user, query or fragment: none of them is a part of the protocol, and each could hide a
    # secret in a log line.
    if not _URL.match(url):
        raise ValueError(f"the URL of `{name}` must be https://host[:port][/path]")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(f"the URL of `{name}` has a port that is not one") from None
    if parts.scheme == "http" and not ListenAddress(host, port or 80).loopback:
        raise ValueError(f"the URL of `{name}` must be https, unless its host is loopback")


# RFC 6409 and RFC 8314: mail submission with STARTTLS, and with TLS from the first byte.
_PORTS = {"smtp": 587, "smtps": 465}
STARTTLS = {"always": True, "never": False, "auto": None}


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The hosts, hosts with a port, and networks that may be called although their addresses are
    not public."""

    hosts: frozenset[str] = frozenset()
    host_ports: frozenset[tuple[str, int]] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "AllowedHosts":
        """Parse `host, host:port, CIDR, …`. Raise `ValueError`, which names the bad entry."""
        hosts, host_ports, networks = set(), set(), []
        for entry in filter(None, map(str.strip, text.split(","))):
            # Try a network first: the colons of an IPv6 address do not begin a port.
            if (network := _network(entry)) is not None:
                networks.append(network)
                continue
            host, colon, port = entry.rpartition(":")
            if not colon:
                hosts.add(_host(entry, entry))
            elif port.isascii() and port.isdigit() and 0 < int(port) < 65536:
                host_ports.add((_host(host, entry), int(port)))
            else:
                raise ValueError(f"`{entry}` is not a host, `host:port` or CIDR")
        return cls(frozenset(hosts), frozenset(host_ports), tuple(networks))

    def permits(self, host: str, port: int, address: Address) -> bool:
        """Return whether a connection to `address`, which `host` resolved to, is allowed."""
        # DNS ignores case, and `host.` is the same as `host`: every spelling must match an entry.
        name = host.lower().rstrip(".")
        if name in self.hosts or (name, port) in self.host_ports:
            return True
        if any(address in network for network in self.networks):
            return True
        # A tenant chooses a webhook's address, so it must not reach what the tenant can't: our own
        # host, its network, a cloud's metadata service.
        return refusal(address) is None

    def permits_url(self, url: str) -> bool:
        """Return whether `url` may be called, as far as the URL alone can tell. A host name always
        passes, because its addresses are checked at each call."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = literal(host)
        # A name passes: its addresses are checked at each call, since they may change.
        return address is None or self.permits(host, port, address)


@dataclass(frozen=True, slots=True)
class MailServer:
    """The operator's mail server. `tls` means TLS from the first byte. If `starttls` is None,
    STARTTLS is used if the server offers it. `repr` leaves out the password."""

    host: str
    port: int
    username: str | None
    password: str | None
    tls: bool
    starttls: bool | None

    def __repr__(self) -> str:
        return f"MailServer({self.host!r}, {self.port})"

    @classmethod
    def parse(cls, url: str) -> "MailServer":
        """Parse `smtp[s]://[user:password@]host[:port][?starttls=always|never|auto]`. Raise
        `ValueError` if it is not valid, without quoting the URL, which may hold a password."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            # `urlsplit`'s own message may quote a part of the URL.
            raise ValueError("is not a URL") from None
        if parts.scheme not in _PORTS or not host:
            raise ValueError("must begin with smtp:// or smtps:// and name a host")
        # Keep blank values, so that a bare `?starttls` is refused instead of ignored.
        options = parse_qs(parts.query, keep_blank_values=True)
        starttls = options.pop("starttls", ["auto"])[-1]
        if options or starttls not in STARTTLS or parts.path not in ("", "/"):
            raise ValueError("may only end in ?starttls=always, ?starttls=never or ?starttls=auto")
        tls = parts.scheme == "smtps"
        return cls(
            host=host,
            port=port or _PORTS[parts.scheme],
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            tls=tls,
            starttls=False if tls else STARTTLS[starttls],
        )


def literal(host: str) -> Address | None:
    """Return a URL's host as an IP address, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None


def _host(text: str, entry: str) -> str:
    host = text.strip("[]").lower().rstrip(".")
    if not host or any(character.isspace() or character in "/@?#" for character in host):
        raise ValueError(f"`{entry}` is not a host, `host:port` or CIDR")
    return host
