"""How a Redis is named in a setting, for both services. Opens none.

    redis://[user:password@]host[:port][/db]        rediss:// the same over TLS
    redis+cluster://[user:password@]host:port[,host:port…]          rediss+cluster://

Options after a `?`: `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`, paths, of TLS alone.
"""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

PORT = 6379
_SCHEMES = {
    "redis": (False, False),
    "rediss": (True, False),
    "redis+cluster": (False, True),
    "rediss+cluster": (True, True),
}
_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """Its representation shows no password."""

    nodes: tuple[tuple[str, int], ...]
    tls: bool = False
    cluster: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """`ValueError` with what is wrong, which never repeats a password."""
        scheme, apart, rest = text.partition("://")
        if not apart or scheme not in _SCHEMES:
            raise ValueError(f"must begin with {', '.join(f'{each}://' for each in _SCHEMES)}")
        tls, cluster = _SCHEMES[scheme]
        split = urlsplit(f"//{rest}")
        user, at, hosts = split.netloc.rpartition("@")
        name, _, password = user.partition(":")
        options = tuple(parse_qsl(split.query, keep_blank_values=True))
        if any(key not in _OPTIONS or not tls for key, _ in options):
            raise ValueError(f"takes {', '.join(sorted(_OPTIONS))} after a `?`, and only with TLS")
        nodes = tuple(map(_node, hosts.split(",")))
        if len(nodes) > 1 and not cluster:
            raise ValueError("names several hosts, which only a cluster has")
        if split.fragment:
            raise ValueError("has a fragment")
        return cls(
            nodes=nodes,
            tls=tls,
            cluster=cluster,
            db=_db(split.path, cluster),
            username=unquote(name) or None if at else None,
            password=unquote(password) or None if at else None,
            options=options,
        )


def _node(text: str) -> tuple[str, int]:
    # Not repeated: a `/`, `?` or `#` that a password holds as it is makes this part of it.
    try:
        split = urlsplit(f"//{text}")
        host, port = split.hostname, split.port
    except ValueError:
        raise ValueError("names what is no host and port") from None
    if not host:
        raise ValueError("names no host")
    return host, PORT if port is None else port


def _db(path: str, cluster: bool) -> int:
    number = path.removeprefix("/")
    if not number:
        return 0
    if cluster or not (number.isascii() and number.isdigit()):
        raise ValueError("after the host comes the number of a database, and a cluster has none")
    return int(number)
