"""Three kinds of addresses: those to listen on, URLs of Redis, and those to which a service may
connect.

A listening address, parsed from a setting: `host:port`.

The URL of a Redis, parsed from a setting, for both services.

    redis://[user:password@]host[:port][/db]        rediss:// the same over TLS
    redis+cluster://[user:password@]host:port[,host:port…]          rediss+cluster://

Options after a `?`, for TLS only: `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`, each a path.

The decision to which addresses a service may connect when someone else chose the name: webhooks of
the control API, upstreams of the sidecar. Allows only public unicast addresses, against SSRF
(server-side request forgery: an attacker makes us call a server that only we can reach).

Every network here is or was in one of IANA's registries of special-purpose addresses (RFC 6890),
and cites the document that reserves it. The standard library's `is_global` is no substitute: it
follows the registries as they were when that Python was released, and treats addresses that embed
another address, such as 6to4's, as global.
"""

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

EVERY = "*"
"""The host name by which a setting asks to listen on every address of this machine, of both IP
versions."""
EVERY_HOSTS = ("0.0.0.0", "::")  # noqa: S104  # nothing is bound by this
"""The two hosts for which `EVERY` stands. Each needs a socket of its own: `::` takes IPv4 only
where the system's settings let it."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port to listen on. With port 0 the system chooses the port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """Parse an address such as `127.0.0.1:8700`, `[::1]:8700` or `*:8700`. Raises `ValueError`
        for anything else."""
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        # `isdigit` alone accepts `²`, which `int` refuses. The length bounds the work of `int`.
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 65536
        if not colon or not bare or number > 65535:
            raise ValueError(f"`{text}` is not host:port")
        if ":" in bare and bare == host:
            raise ValueError(f"`{text}`: an IPv6 address needs brackets, as in [::1]:8700")
        if bare == EVERY and not number:
            # The system would choose a different port for each IP version.
            raise ValueError(
                f"`{text}` needs a port: for the host `*`, the system can't choose one"
            )
        return cls(bare, number)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts to listen on, each with its own socket: two for `*`, else one. If one of the
        two can't be bound, the other is enough: this machine may lack an IP version."""
        return EVERY_HOSTS if self.host == EVERY else (self.host,)

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the address. False for a name other than `localhost`,
        which may resolve to any address."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


DEFAULT_PORT = 6379
_SCHEMES = {
    "redis": (False, False),
    "rediss": (True, False),
    "redis+cluster": (False, True),
    "rediss+cluster": (True, True),
}
_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL of a Redis server or cluster: its `nodes` as host and port, and how to log in.
    Its `repr` does not show the password."""

    nodes: tuple[tuple[str, int], ...]
    tls: bool = False
    cluster: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """Parse a URL in one of the forms at the top of this module. Raises `ValueError` with the
        reason, which never contains the password."""
        scheme, apart, rest = text.partition("://")
        if not apart or scheme not in _SCHEMES:
            raise ValueError(f"must begin with {', '.join(f'{each}://' for each in _SCHEMES)}")
        tls, cluster = _SCHEMES[scheme]
        split = urlsplit(f"//{rest}")
        # Split by hand: a cluster's URL lists several hosts, which `urlsplit` takes for one.
        user, at, hosts = split.netloc.rpartition("@")
        name, _, password = user.partition(":")
        # On a plain connection, certificates would have no effect.
        options = tuple(parse_qsl(split.query, keep_blank_values=True))
        if any(key not in _OPTIONS or not tls for key, _ in options):
            raise ValueError(
                f"takes only {', '.join(sorted(_OPTIONS))} after a `?`, and only with TLS"
            )
        nodes = tuple(map(_node, hosts.split(",")))
        if len(nodes) > 1 and not cluster:
            raise ValueError(
                "names several hosts: only `redis+cluster://` and `rediss+cluster://` may"
            )
        if split.fragment:
            raise ValueError("has a fragment (`#…`): percent-encode a `#` in the password")
        return cls(
            nodes=nodes,
            tls=tls,
            cluster=cluster,
            db=_db(split.path, cluster),
            # `redis://:password@host` means the default user.
            username=unquote(name) or None if at else None,
            password=unquote(password) or None if at else None,
            options=options,
        )

    def with_files_in(self, directory: Path) -> "RedisUrl":
        """Return the same URL, where relative paths in the options are relative to `directory`."""
        # `directory / "/etc/x"` is `/etc/x`: an absolute path stays as it is.
        return replace(
            self, options=tuple((key, str(directory / path)) for key, path in self.options)
        )


def _node(text: str) -> tuple[str, int]:
    # The error does not quote the text: an unencoded `/`, `?` or `#` in a password makes it part of
    # the host.
    try:
        split = urlsplit(f"//{text}")
        host, port = split.hostname, split.port
    except ValueError:
        raise ValueError(
            "has no valid host and port; percent-encode `/`, `?`, `#` and `@` in a password"
        ) from None
    if not host:
        raise ValueError("names no host")
    return host, DEFAULT_PORT if port is None else port


def _db(path: str, cluster: bool) -> int:
    number = path.removeprefix("/")
    if not number:
        return 0
    if cluster or not (number.isascii() and number.isdigit()):
        raise ValueError(
            "after the host, only the number of a database may follow, and not for a cluster"
        )
    return int(number)


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

REASONS = (
    "unspecified", "loopback", "link_local", "private", "cgnat", "multicast", "embedded",
    "reserved",
)  # fmt: skip
"""The reasons for which `refusal` refuses an address. They are also the values of a metric's
label."""


class ReservedRange(NamedTuple):
    """A network whose addresses are not public, the reason (one of `REASONS`), and the document
    that reserves it."""

    network: Network
    reason: str
    source: str


def _reserved(network: str, reason: str, source: str) -> ReservedRange:
    return ReservedRange(ip_network(network), reason, source)


# INVARIANT: a network comes before those that contain it; the first match gives the reason.
NOT_PUBLIC = (
    _reserved("0.0.0.0/32", "unspecified", "RFC 1122, section 3.2.1.3"),
    _reserved("0.0.0.0/8", "reserved", "RFC 791, section 3.2: this network"),
    _reserved("10.0.0.0/8", "private", "RFC 1918"),
    _reserved("100.64.0.0/10", "cgnat", "RFC 6598: shared address space"),
    _reserved("127.0.0.0/8", "loopback", "RFC 1122, section 3.2.1.3"),
    _reserved("169.254.0.0/16", "link_local", "RFC 3927"),
    _reserved("172.16.0.0/12", "private", "RFC 1918"),
    _reserved("192.0.0.0/24", "reserved", "RFC 6890, section 2.1: IETF protocol assignments"),
    _reserved("192.0.2.0/24", "reserved", "RFC 5737: documentation"),
    _reserved("192.88.99.0/24", "reserved", "RFC 7526: 6to4 relays, deprecated"),
    _reserved("192.168.0.0/16", "private", "RFC 1918"),
    _reserved("198.18.0.0/15", "reserved", "RFC 2544: benchmarks"),
    _reserved("198.51.100.0/24", "reserved", "RFC 5737: documentation"),
    _reserved("203.0.113.0/24", "reserved", "RFC 5737: documentation"),
    _reserved("224.0.0.0/4", "multicast", "RFC 5771"),
    _reserved("240.0.0.0/4", "reserved", "RFC 1112, section 4; 255.255.255.255 is RFC 919"),
    _reserved("::/128", "unspecified", "RFC 4291, section 2.5.2"),
    _reserved("::1/128", "loopback", "RFC 4291, section 2.5.3"),
    # These embed an IPv4 address, and some gateway would forward to it.
    _reserved("::/96", "embedded", "RFC 4291, section 2.5.5.1: IPv4-compatible"),
    _reserved("::ffff:0:0/96", "embedded", "RFC 4291, section 2.5.5.2: IPv4-mapped"),
    _reserved("::ffff:0:0:0/96", "embedded", "RFC 2765, section 2.1: IPv4-translated"),
    _reserved("64:ff9b::/96", "embedded", "RFC 6052, section 2.1: NAT64"),
    _reserved("64:ff9b:1::/48", "embedded", "RFC 8215: NAT64 with a local prefix"),
    _reserved("2001::/32", "embedded", "RFC 4380, section 2.6: Teredo"),
    _reserved("2002::/16", "embedded", "RFC 3056, section 2: 6to4"),
    _reserved("100::/64", "reserved", "RFC 6666: discard only"),
    _reserved("100:0:0:1::/64", "reserved", "RFC 9780: dummy prefix"),
    # Benchmarks (2001:2::/48), ORCHID (2001:10::/28 and 2001:20::/28) and protocol anycast: no data
    # source and no webhook receiver has an address here.
    _reserved("2001::/23", "reserved", "RFC 2928: IETF protocol assignments"),
    _reserved("2001:db8::/32", "reserved", "RFC 3849: documentation"),
    _reserved("3fff::/20", "reserved", "RFC 9637: documentation"),
    _reserved("5f00::/16", "reserved", "RFC 9602: SRv6 segment identifiers"),
    _reserved("fc00::/7", "private", "RFC 4193: unique local"),
    _reserved("fe80::/10", "link_local", "RFC 4291, section 2.5.6"),
    _reserved("fec0::/10", "reserved", "RFC 3879: site-local, deprecated"),
    _reserved("ff00::/8", "multicast", "RFC 4291, section 2.7"),
)

# All that IANA has assigned as global unicast (IPv6 Address Space registry; RFC 4291, section 2.4).
# The rest of IPv6 is not assigned yet.
_GLOBAL_UNICAST = ip_network("2000::/3")


def refusal(address: Address) -> str | None:
    """Return the reason why a service may not connect to `address` when someone else chose the name
    that resolved to it; None if it may. The reason is one of `REASONS`."""
    for each in NOT_PUBLIC:
        if address in each.network:
            return each.reason
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    return None
