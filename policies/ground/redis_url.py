"""The URL of a Redis in a setting, parsed for both services. Opens no connection.

    redis://[user:password@]host[:port][/db]        rediss:// the same over TLS
    redis+cluster://[user:password@]host:port[,host:port…]          rediss+cluster://

Options after a `?`, for TLS only: `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`, each a path.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

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
    """A parsed URL. Its `repr` does not show the password."""

    nodes: tuple[tuple[str, int], ...]
    tls: bool = False
    cluster: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """Raises `ValueError` with the reason, which never contains the password."""
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
        """Return the same URL with the options' relative paths taken from this directory."""
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
