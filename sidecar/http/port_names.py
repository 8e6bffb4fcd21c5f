"""Decides whether a request names a port of this sidecar by one of the port's own names, and was
not sent by a web page of another site.

A web page can make its reader's browser send requests to any address. It can also read the
responses if the page's own host name is made to resolve to that address (DNS rebinding). That name
is then in `Host`, so a port that asks for no key accepts only names that no stranger controls.
Pure.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Literal, NamedTuple

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Forbidden, Malformed
from sidecar.http.authority import DEFAULT_PORTS, Authority, HostPattern, authority, canonical_host
from sidecar.http.headers import Fields

_UNSPECIFIED = frozenset(("*", "0.0.0.0", "::"))  # noqa: S104  # nothing is bound by this


class ForeignRequest(Forbidden):
    """the request was sent by a page of another site"""

    def __init__(self, cause: Literal["host", "origin"], message: str, host: Authority) -> None:
        super().__init__(message)
        self.cause = cause
        self.host = host
        """The host that the request names, with port 0 if it states no port."""


class _Caller(NamedTuple):
    """The values of the header fields `Host`, `Origin` and `Sec-Fetch-Site`, which say where a
    request was sent, and by which web page."""

    hosts: Sequence[bytes]
    origins: Sequence[bytes]
    sites: Sequence[bytes]


class PortNames:
    """The host names under which requests may reach the port `listen`: the names and addresses of
    loopback, the port's own address, and `hosts`. With `buckets`, any name below one of these too,
    since virtual-hosted S3 puts the bucket's name in front."""

    def __init__(
        self, listen: ListenAddress, hosts: Iterable[str] = (), *, buckets: bool = False
    ) -> None:
        self._configured = [HostPattern.parse(each) for each in hosts]
        # The zone of a link-local address is no part of a request's host.
        bound = listen.host.partition("%")[0]
        own = {"localhost"} if bound in _UNSPECIFIED else {"localhost", canonical_host(bound)}
        self._own = frozenset(own)
        self.port = listen.port
        self._buckets = buckets

    def check_host(self, fields: Fields, local: str | None) -> None:
        """Raise `ForeignRequest` if the request names another server, and `Malformed` if the host
        that it names is invalid. `local` is the address at which the connection arrived."""
        host = _host(_caller(fields))
        if host is not None and not self._covers(host, local):
            raise ForeignRequest(
                "host",
                f"`{host.host}` is not a name of this port: if it is yours, add it to the "
                "sidecar's `hosts`",
                host,
            )

    def check_origin(self, fields: Fields) -> None:
        """Raise `ForeignRequest` if a web page of another site sent the request, and `Malformed` if
        the host that it names is invalid. Call it for a port or a path that asks for no key."""
        caller = _caller(fields)
        host = _host(caller) or Authority("", 0)
        # Browsers set both, and no page can leave out or change either.
        if any(each.strip().lower() == b"cross-site" for each in caller.sites):
            raise ForeignRequest("origin", "a page of another site sent this request", host)
        if not all(self._is_own_origin(each, host) for each in caller.origins):
            raise ForeignRequest(
                "origin",
                "the header `Origin` names another server: if it is yours, add its host to the "
                "sidecar's `hosts`",
                host,
            )

    def _covers(self, host: Authority, local: str | None) -> bool:
        if any(pattern.matches(host) for pattern in self._configured):
            return True
        if host.host in self._own or _is_loopback(host.host) or _is_address(host.host, local):
            return True
        # `open.kb.test` is the bucket `open` at `kb.test`. An address has no names below it.
        return self._buckets and any(
            not _is_loopback(name) and host.host.endswith(f".{name}")
            for name in (*self._own, *(each.name for each in self._configured))
        )

    def _is_own_origin(self, text: bytes, host: Authority) -> bool:
        scheme, _, rest = text.decode("latin-1").partition("://")
        default = DEFAULT_PORTS.get(scheme.lower())
        if default is None:  # such as `null`
            return False
        try:
            origin = authority(rest, default)
        except Malformed:
            return False
        own = host._replace(port=host.port or default)
        return origin == own or any(pattern.matches(origin) for pattern in self._configured)


def _caller(fields: Fields) -> _Caller:
    found = _Caller([], [], [])
    lists = {b"host": found.hosts, b"origin": found.origins, b"sec-fetch-site": found.sites}
    for name, value in fields:
        values = lists.get(name.lower())
        if isinstance(values, list):
            values.append(value)
    return found


def _host(caller: _Caller) -> Authority | None:
    """Return the host that a request names, with port 0 if it states no port; None without a host,
    which no browser leaves out. Raises `Malformed` if it names a host twice or the host is
    invalid."""
    if not caller.hosts:
        return None
    if len(caller.hosts) > 1:
        raise Malformed("the header `host` occurs twice")
    return authority(caller.hosts[0].decode("latin-1"), 0)


@lru_cache(maxsize=128)
def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(host: str, local: str | None) -> bool:
    """Return whether `host` is the address at which the connection arrived."""
    if local is None:
        return False
    try:
        address = ip_address(local.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return host == str(address)
