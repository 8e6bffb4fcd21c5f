"""Two kinds of addresses that settings contain: those to listen on, and URLs of Redis.

A listening address, parsed from a setting: `host:port`.

The URL of a Redis, parsed from a setting, for both services.

    redis://[user:password@]host[:port][/db]        rediss:// the same over TLS
    redis+cluster://[user:password@]host:port[,host:port…]          rediss+cluster://

Options after a `?`, for TLS only: `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`, each a path.
"""

from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
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
