"""The ways to a data source, as a settings file has them: where it listens, what it is called, and
that nothing leads to two. Knows the keys `listen`, `hosts` and `path` and no others."""

from collections import defaultdict
from collections.abc import Sequence
from ipaddress import ip_network

from policies.ground.errors import Malformed
from policies.ground.listen_address import ListenAddress
from sidecar.config.sections import Section
from sidecar.proxy.routing.source_lookup import (
    HostPattern,
    SourceTable,
    path_segments,
    upstream_parts,
)
from sidecar.proxy.tunnel.tcp_sources import TcpSources
from sidecar.settings.model import SidecarSettings, Source

_OF_REQUESTS = ("names", "routes", "sensitivity_field", "path", "listen_tls", "terminate")


def upstream_of(section: Section, kind: str) -> str:
    """The address of a data source, in a form that has one reading."""
    unread = kind == "tcp"
    text = section.address("upstream", ("tcp",)) if unread else section.address("upstream")
    try:
        if text and path_segments(upstream_parts(text).path) and unread:
            section.complain("upstream", "is tcp://host:port, without a path")
    except (Malformed, ValueError) as error:
        # `address` has said what is no address at all.
        if not section.complained("upstream"):
            section.complain("upstream", str(error))
    return text


def refuse_unread(section: Section, source: Source) -> None:
    """What can't be held to of a source whose connections nobody reads."""
    for key in _OF_REQUESTS:
        if section.has(key):
            section.complain(key, "is not for the kind `tcp`: nothing of what passes is read")
    if section.has("writes") and source.writes == "deny":
        section.complain("writes", "can't be denied to the kind `tcp`: leave it out, or `allow`")


def listen_of(section: Section, *, needed: bool) -> ListenAddress | None:
    """`listen`; `needed` where no other way leads to the source."""
    listen = section.listen("listen")
    if listen is None and needed and not section.complained("listen"):
        section.complain("listen", "is required")
    return listen


def hosts_of(section: Section) -> tuple[str, ...]:
    """`hosts`, each an exact name or `*.` and a name."""
    texts = section.texts("hosts")
    for text in texts:
        try:
            HostPattern.parse(text)
        except Malformed as error:
            section.complain("hosts", f"`{text}`: {error}; it is `name` or `*.name`")
    return texts


def addresses_of(section: Section) -> tuple[str, ...]:
    """`addresses`, each a network."""
    texts = section.texts("addresses")
    for text in texts:
        try:
            ip_network(text)
        except ValueError as error:
            section.complain("addresses", f"`{text}` is no network such as 10.0.0.0/8: {error}")
    return texts


def path_of(section: Section) -> str | None:
    """`path`, in a form that has one spelling."""
    text = section.text("path")
    try:
        if text is not None and ("?" in text or not path_segments(text)):
            section.complain("path", "must be a path below `/`, such as `/kb`")
    except Malformed as error:
        section.complain("path", str(error))
    return text


def refuse_shared(top: Section, settings: SidecarSettings) -> None:
    """Two sources under one name, and listeners on one port that nothing tells apart."""
    _refuse_ports(top, settings)
    _refuse_aliases(top, settings.sources)


def _refuse_aliases(top: Section, sources: Sequence[Source]) -> None:
    aliases: dict[str, int] = {}
    for index, source in enumerate(sources):
        first = aliases.setdefault(source.alias, index)
        if first != index:
            top.complain(
                f"sources[{index}].alias", f"`{source.alias}` is that of sources[{first}] too"
            )


def _refuse_ports(top: Section, settings: SidecarSettings) -> None:
    taken = {settings.listen: "listen"}
    if settings.metrics_listen is not None:
        _take(top, taken, settings.metrics_listen, "metrics_listen")
    if settings.forward_proxy is not None:
        _take(top, taken, settings.forward_proxy, "forward_proxy")
    if settings.transparent is not None:
        _take(top, taken, settings.transparent, "transparent")
        _refuse_one_port(top, settings.sources)
    if settings.forward_proxy is not None or settings.transparent is not None:
        _refuse_one_name(top, settings.sources)
    shared: dict[ListenAddress, list[int]] = defaultdict(list)
    for index, source in enumerate(settings.sources):
        if source.listen is not None and source.listen.port:
            shared[source.listen].append(index)
    for listen, indexes in shared.items():
        _take(top, taken, listen, f"sources[{indexes[0]}].listen")
        _refuse_alike(top, settings.sources, listen, indexes)


def _refuse_one_name(top: Section, sources: Sequence[Source]) -> None:
    """Where sources are found by their names, each name leads to one."""
    try:
        clashes = list(SourceTable(sources).clashes())
    except (Malformed, ValueError):
        return  # said already
    for first, second, name in clashes:
        top.complain(
            f"sources[{sources.index(second)}].hosts",
            f"`{name}` leads to sources[{sources.index(first)}] too, below the same path",
        )


def _refuse_one_port(top: Section, sources: Sequence[Source]) -> None:
    """What is redirected to the port of a `tcp` source is that source's: nobody waits for a name,
    and only an address could tell it from another."""
    try:
        clashes = list(TcpSources(sources).clashes())
    except (Malformed, ValueError):
        return  # said already
    for unread, other, port in clashes:
        top.complain(
            f"sources[{sources.index(other)}]",
            f"port {port} is that of sources[{sources.index(unread)}], of the kind `tcp`: what is "
            "redirected there can't be told apart, but by an address in `hosts` of either, where "
            "both are `tcp`",
        )


def _take(top: Section, taken: dict[ListenAddress, str], listen: ListenAddress, key: str) -> None:
    other = taken.setdefault(listen, key)
    if other != key and listen.port:
        top.complain(key, f"`{listen}` is the address of `{other}` too")


def _refuse_alike(
    top: Section, sources: Sequence[Source], listen: ListenAddress, indexes: Sequence[int]
) -> None:
    """Of several sources on one address each is told from the others by a name or a path."""
    if len(indexes) > 1 and any(sources[index].kind == "tcp" for index in indexes):
        top.complain(
            f"sources[{indexes[1]}].listen",
            f"`{listen}` is the address of `sources[{indexes[0]}].listen` too, and nothing is read "
            "of what comes to one of the kind `tcp`",
        )
        return
    for index in indexes[1:]:
        if sources[index].listen_tls != sources[indexes[0]].listen_tls:
            top.complain(
                f"sources[{index}].listen_tls",
                f"`{listen}` has another certificate in sources[{indexes[0]}], or none",
            )
    seen: dict[tuple[object, object], int] = {}
    for index in indexes:
        names: set[HostPattern | None]
        try:
            below = path_segments(sources[index].path)
            names = {HostPattern.parse(each) for each in sources[index].hosts} or {None}
        except Malformed:
            continue  # said already
        for name in names:
            first = seen.setdefault((name, below), index)
            if first != index:
                top.complain(
                    f"sources[{index}].listen",
                    f"`{listen}` is the address of `sources[{first}].listen` too, and neither "
                    "`hosts` nor `path` tells the two apart",
                )
                break
