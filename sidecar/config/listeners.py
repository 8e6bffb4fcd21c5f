"""Checks the settings of how agents reach a data source: the keys `upstream`, `grpc`, `hosts`,
`path`, `exact_paths` and `addresses`. Checks too that no listener, name or path leads to two
sources. Knows no other keys."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_network
from itertools import product
from typing import TypeVar
from urllib.parse import urlsplit

from policies.definitions.definition import shown
from policies.definitions.forms import LISTEN, Parsed, Text
from policies.definitions.records import Section
from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed
from sidecar.config.forms import Texts, address_fault
from sidecar.config.postgres import postgres_fault
from sidecar.http.authority import HostPattern
from sidecar.http.request_target import canonical
from sidecar.proxy.routing.source_lookup import (
    SourceTable,
    TcpSources,
    grpc_address,
    has_only_exact_paths,
    path_segments,
    upstream_parts,
)
from sidecar.settings.model import UNREAD_KINDS, SidecarSettings, Source

_REQUEST_KEYS = (
    "names", "routes", "paths", "trailers", "sensitivity_field", "path", "exact_paths",
    "http", "listen_tls", "half_close", "terminate",
)  # fmt: skip
"""Keys that take effect only if the sidecar reads the requests to the source."""

_Clash = TypeVar("_Clash")


def upstream_fault(text: str, kind: str) -> str | None:
    """Return the fault of the address of a data source; None if it has none. An address that could
    be read in two ways is a fault."""
    if kind == "postgres":
        return postgres_fault(text)
    is_tcp = kind == "tcp"
    if fault := address_fault(text, ("tcp",)) if is_tcp else address_fault(text):
        return fault
    try:
        # `upstream_parts` raises for a `tcp` address without a port: there is no default.
        if path_segments(upstream_parts(text.rstrip("/")).path) and is_tcp:
            # Nothing would add the path: the bytes of such a connection are passed on unread.
            return f"`{text}` must be tcp://host:port, without a path"
    except (Malformed, ValueError) as error:
        return f"`{text.rstrip('/')}`: {error}"
    return None


def _grpc(text: str) -> str:
    text = text.rstrip("/")
    if fault := upstream_fault(text, "http"):
        raise ValueError(fault)
    if urlsplit(text).path:
        # A client of gRPC names a host and a port, so nothing could add the path.
        wrong = f"`{text}` must be http://host:port or https://host:port, without a path"
        raise ValueError(wrong)
    return text


GRPC = Parsed(_grpc, {"pattern": "://"})
"""The type of the address of a data source's gRPC port."""


def refuse_request_keys(section: Section, source: Source) -> None:
    """Complain about keys that can't take effect for a source of the kind `tcp`, whose traffic is
    not read."""
    refuse_keys(
        section,
        _REQUEST_KEYS,
        "does not apply to the kind `tcp`, whose traffic is not read; remove it",
    )
    if section.has("writes") and source.writes == "deny":
        section.complain(
            "writes",
            "`deny` is impossible for the kind `tcp`, whose traffic is not read; remove the key "
            "or set `allow`",
        )


def refuse_keys(section: Section, keys: Iterable[str], fault: str) -> None:
    """Complain about each of `keys` that the section has."""
    for key in keys:
        if section.has(key):
            section.complain(key, fault)


def _loopback(text: str) -> ListenAddress:
    listen = ListenAddress.parse(text)
    if not listen.loopback:
        raise ValueError(f"`{listen}` must be an address of loopback, such as 127.0.0.1:8714")
    return listen


LOOPBACK = Parsed(_loopback, LISTEN.limits)
"""The type of a listening address that other hosts can't reach."""


def _host_fault(text: str) -> str | None:
    try:
        HostPattern.parse(text)
    except Malformed as error:
        return f"`{text}`: {error}; write `name` or `*.name`"
    return None


def _network_fault(text: str) -> str | None:
    try:
        ip_network(text)
    except ValueError as error:
        return f"`{text}` is not a network such as 10.0.0.0/8: {error}"
    return None


def _path_fault(text: str) -> str | None:
    """Return the fault of a path prefix, which must have only one spelling; None if it has no
    fault."""
    try:
        if "?" in text or not path_segments(text):
            return f"`{text}` must be a path below `/`, such as `/kb`"
    except Malformed as error:
        return f"{shown(text)}: {error}"
    return None


def _exact_path_fault(text: str) -> str | None:
    """Return the fault of a path, which must be in its canonical form; None if it has no fault."""
    try:
        target = canonical(text)
    except Malformed as error:
        return f"{shown(text)}: {error}"
    if target.forwarded != text or target.query is not None:
        return f"{shown(text)} must be a path in its plain form, `{target.path}`"
    return None


HOSTS = Texts(_host_fault)
"""The type of a list of host names: each is exact, or begins with `*.`."""
ADDRESSES = Texts(_network_fault)
PATH = Text(_path_fault)
EXACT_PATHS = Texts(_exact_path_fault)


def refuse_conflicts(top: Section, settings: SidecarSettings) -> None:
    """Complain about sources with the same alias, and about listeners on one port between which
    nothing distinguishes."""
    _refuse_ports(top, settings)
    _refuse_aliases(top, settings.sources)


def _refuse_aliases(top: Section, sources: Sequence[Source]) -> None:
    aliases: dict[str, int] = {}
    for index, source in enumerate(sources):
        first = aliases.setdefault(source.alias, index)
        if first != index:
            top.complain(
                f"sources[{index}].alias",
                f"`{source.alias}` is already the alias of sources[{first}]; choose another",
            )


def _refuse_ports(top: Section, settings: SidecarSettings) -> None:
    taken = {settings.listen: "listen"}
    for key in ("metrics_listen", "quit_listen", "forward_proxy", "transparent"):
        listen = getattr(settings, key)
        if listen is not None:
            _take(top, taken, listen, key)
    for index, door in enumerate(settings.doors):
        if door.listen is not None:
            _take(top, taken, door.listen, f"doors[{index}].listen")
    if settings.transparent is not None:
        _refuse_same_tcp_port(top, settings.sources)
    if settings.forward_proxy is not None or settings.transparent is not None:
        _refuse_same_name(top, settings.sources)
    # Sources may share an address with each other, but not with another listener.
    shared: dict[ListenAddress, list[int]] = defaultdict(list)
    for index, source in enumerate(settings.sources):
        if source.listen is not None and source.listen.port:  # for 0, the system picks a free one
            shared[source.listen].append(index)
    for address, indexes in shared.items():
        _take(top, taken, address, f"sources[{indexes[0]}].listen")
        _refuse_same_address(top, settings.sources, address, indexes)
    for index, source in enumerate(settings.sources):
        # The same address as the source's own `listen` has been reported.
        if source.grpc_listen not in (None, source.listen):
            _take(top, taken, source.grpc_listen, f"sources[{index}].grpc_listen")


def _refuse_same_name(top: Section, sources: Sequence[Source]) -> None:
    """Complain about a host name and path that lead to two sources: the proxy finds a source by
    these alone."""
    for first, second, name in _clashes(lambda: SourceTable(sources).clashes()):
        key = "grpc" if second.grpc and name == grpc_address(second) else "hosts"
        top.complain(
            f"sources[{sources.index(second)}].{key}",
            f"`{name}` already leads to sources[{sources.index(first)}], below the same path",
        )


def _refuse_same_tcp_port(top: Section, sources: Sequence[Source]) -> None:
    """Complain about a port that redirected connections to a `tcp` source share with another
    source. The sidecar reads no name from such a connection, so only an address could distinguish
    the two."""
    for tcp, other, port in _clashes(lambda: TcpSources(sources).clashes()):
        top.complain(
            f"sources[{sources.index(other)}]",
            f"port {port} is also that of sources[{sources.index(tcp)}], of the kind `tcp`; "
            "redirected connections can be distinguished only if both are `tcp` and one has an "
            "address in `hosts`",
        )


def _clashes(find: Callable[[], Iterable[_Clash]]) -> list[_Clash]:
    try:
        return list(find())
    except (Malformed, ValueError):
        return []  # an address or a name is faulty, and has been reported


def _take(top: Section, taken: dict[ListenAddress, str], listen: ListenAddress, key: str) -> None:
    other = taken.setdefault(listen, key)
    if other != key and listen.port:
        top.complain(key, f"`{listen}` is already the address of `{other}`; choose another port")


def _refuse_same_address(
    top: Section, sources: Sequence[Source], listen: ListenAddress, indexes: Sequence[int]
) -> None:
    """Complain about sources that share a listening address and differ neither in a host name nor
    in a path."""
    if len(indexes) > 1 and any(sources[index].kind in UNREAD_KINDS for index in indexes):
        top.complain(
            f"sources[{indexes[1]}].listen",
            f"`{listen}` is already the address of `sources[{indexes[0]}].listen`; a source of the "
            "kind `tcp` or `postgres` needs an address of its own",
        )
        return
    # The TLS handshake comes before the `Host` that chooses a source, so all share a certificate;
    # and a connection may carry requests to several sources.
    for index in indexes[1:]:
        for key in ("listen_tls", "half_close"):
            if getattr(sources[index], key) != getattr(sources[indexes[0]], key):
                top.complain(
                    f"sources[{index}].{key}",
                    f"must be the same as in sources[{indexes[0]}], which shares the address "
                    f"`{listen}`",
                )
    seen: dict[tuple[object, object], int] = {}
    for index in indexes:
        names: set[HostPattern | None]
        try:
            paths = _paths_to(sources[index])
            # A source without `hosts` serves every name, so two of them clash.
            names = {HostPattern.parse(each) for each in sources[index].hosts} or {None}
        except Malformed:
            continue  # reported already
        for name, path in product(names, paths):
            first = seen.setdefault((name, path), index)
            if first != index:
                top.complain(
                    f"sources[{index}].listen",
                    f"`{listen}` is already the address of `sources[{first}].listen`; distinguish "
                    "the two by `hosts` or `path`, or choose another port",
                )
                break


def _paths_to(source: Source) -> list[object]:
    """Return the paths that lead from a listening address to this source: the prefix in `path`, and
    each exact path."""
    exact: list[object] = [*source.exact_paths]
    return exact if has_only_exact_paths(source) else [path_segments(source.path), *exact]
