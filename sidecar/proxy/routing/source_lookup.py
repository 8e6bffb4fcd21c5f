"""Finds the configured source that a request is for, by the host and path that it names, or that a
connection is for, by its original port.

    SharedPort    several sources on one listening address, told apart by `hosts` and `path`
    SourceTable   the forward and the transparent proxy: by the name and port that the agent asks
                  for, which are those of the upstream, of `grpc` or of `hosts`
    TcpSources    redirected connections to sources of the kinds `tcp` and `postgres`: such a server
                  may speak first, so the sidecar can't wait for the agent's first bytes, and knows
                  only the original port and address

A request that matches no source gets None, and is denied: there is no default source. Paths are
compared in their canonical form, segment by segment, so that no spelling makes a path look as if it
were below another (`proxy/RULES.md`, B11). Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from sidecar.http.authority import DEFAULT_PORTS, Authority, HostPattern, authority
from sidecar.http.request_target import Target, canonical, encode_segment
from sidecar.settings.model import UNREAD_KINDS, Source

Segments = tuple[str, ...]

_PORTS = {**DEFAULT_PORTS, "postgres": 5432}


class FoundSource(NamedTuple):
    """The source that a request is for, and the request's `target` below the path that leads to the
    source."""

    source: Source
    target: str


class _Row(NamedTuple):
    source: Source
    host: HostPattern | None
    below: Segments
    exact: str | None = None
    """The only path that the row covers, in canonical form; None if the row covers all paths below
    `below`."""
    url: str = ""
    """The URL of the data source that agents mean by the row's name; unknown on a shared port."""


_RowsByPath = dict[tuple[int, Segments], _Row]
"""The rows of one name, by the number of their source and the path that leads to it."""


class SharedPort:
    """Finds the source of a request on an address where several sources listen. A source whose
    `hosts` match comes before one without `hosts`, an exact name before a wildcard, and a longer
    path before a shorter one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        # A source that is alone on its address gets every request that the port takes:
        # `http/port_names.py` has checked the names before.
        alone = len(sources) == 1
        self.opaque = any_opaque(sources)
        rows = [
            row
            for source in sources
            for pattern in _patterns_of(source, alone=alone)
            for row in _rows_of(source, pattern)
        ]
        self._rows = sorted(rows, key=_order)

    def find(self, host: Authority | None, target: Target) -> FoundSource | None:
        """Return the source of a request, or None if none matches. `host` is the server that the
        request names, with port 0 if it states no port; None if it names no host."""
        for source, pattern, below, exact, _ in self._rows:
            if pattern is not None and (host is None or not pattern.matches(host)):
                continue
            if exact is not None:
                if exact == target.path:
                    return FoundSource(source, target.forwarded)
                continue
            rest = _below(below, target)
            if rest is not None:
                return FoundSource(source, rest)
        return None


class SourceGroup(NamedTuple):
    """The sources that share one name and port and are told apart by path; the longest path comes
    first."""

    rows: tuple[_Row, ...]

    @property
    def sole(self) -> Source | None:
        """The source, if the group has only one; None if the path has to decide."""
        return self.rows[0].source if len(self.aliases) == 1 else None

    @property
    def aliases(self) -> tuple[str, ...]:
        # A source has two rows where it has a path and is also called by gRPC, without it.
        return tuple(dict.fromkeys(row.source.alias for row in self.rows))

    @property
    def is_tcp(self) -> bool:
        """True if the source speaks a protocol other than HTTP, in which the server may speak
        first."""
        return self.rows[0].source.kind in UNREAD_KINDS

    def find(self, target: Target) -> FoundSource | None:
        for source, _, below, _, _ in self.rows:
            rest = _below(below, target)
            if rest is not None:
                return FoundSource(source, rest)
        return None


class SourceTable:
    """Finds sources by the name and port under which agents reach them."""

    def __init__(self, sources: Iterable[Source]) -> None:
        sources = tuple(sources)
        self.opaque = any_opaque(sources)
        exact: dict[Authority, _RowsByPath] = {}
        wild: dict[Authority, _RowsByPath] = {}
        for index, source in enumerate(sources):
            for name, is_wild, url in names_of(source):
                below = path_segments(upstream_parts(url).path)
                rows = (wild if is_wild else exact).setdefault(name, {})
                # Each name once: `hosts` may repeat that of the upstream, and `grpc` be the same.
                rows.setdefault((index, below), _Row(source, None, below, url=url))
        self._exact = {name: _group(rows.values()) for name, rows in exact.items()}
        self._wild = {name: _group(rows.values()) for name, rows in wild.items()}

    def at(self, requested: Authority) -> SourceGroup | None:
        """Return the sources at the name and port `requested`, or None if there are none."""
        found = self._exact.get(requested)
        name = requested.host
        # The nearest wildcard wins: `*.a.test` before `*.test`.
        while found is None and "." in name:
            name = name.partition(".")[2]
            found = self._wild.get(Authority(name, requested.port))
        return found

    def clashes(self) -> Iterator[tuple[Source, Source, Authority]]:
        """Yield pairs of sources that can't be told apart, since they have the same path, with the
        name and port that they share."""
        for groups in (self._exact, self._wild):
            for name, group in groups.items():
                seen: dict[Segments, Source] = {}
                for source, _, below, _, _ in group.rows:
                    first = seen.setdefault(below, source)
                    if first is not source:
                        yield first, source, name


class UpstreamParts(NamedTuple):
    """The URL of a source's upstream, parsed. `path` is `/` if the URL has none."""

    scheme: str
    authority: Authority
    path: str


def upstream_parts(url: str) -> UpstreamParts:
    """Parse the URL of an upstream, which the settings have validated."""
    parsed = urlsplit(url)
    default = _PORTS.get(parsed.scheme)
    # The path of PostgreSQL's URL is a database, which is no part of what agents ask for.
    path = "/" if parsed.scheme == "postgres" else parsed.path or "/"
    return UpstreamParts(parsed.scheme, authority(parsed.netloc, default), path)


def grpc_address(source: Source) -> Authority | None:
    """Return the host and port to which the source's calls of gRPC are sent: those of `grpc`, or of
    `upstream` if the kind answers gRPC there. None if the source takes no calls."""
    url = source.grpc_url
    return None if url is None else upstream_parts(url).authority


def any_opaque(sources: Iterable[Source]) -> bool:
    """Return whether one of the sources accepts an escaped slash in a path, so that the routing may
    not refuse it. The source that is found decides again, by its own setting."""
    return any(source.opaque for source in sources)


def patterns(source: Source) -> list[HostPattern]:
    return [HostPattern.parse(each) for each in source.hosts]


def has_only_exact_paths(source: Source) -> bool:
    """Return whether a source's requests must have one of its exact paths: it has no other path on
    its `listen` address."""
    return bool(source.exact_paths) and source.path is None


def path_segments(path: str | None) -> Segments:
    """Return the segments of a path that leads to a source, without a final slash; empty for `/` or
    None."""
    # `/a/` leads to the same source as `/a`.
    segments = canonical(path or "/").segments
    return segments[:-1] if segments[-1] == "" else segments


def _patterns_of(source: Source, *, alone: bool) -> Sequence[HostPattern | None]:
    return (None,) if alone or not source.hosts else patterns(source)


def _rows_of(source: Source, pattern: HostPattern | None) -> Iterator[_Row]:
    for exact in source.exact_paths:
        yield _Row(source, pattern, (), exact)
    if not has_only_exact_paths(source):
        yield _Row(source, pattern, path_segments(source.path))


class SourceName(NamedTuple):
    """A name and port under which agents reach a source. With `wild`, it stands for all names below
    this one. `url` is the URL of the data source that is meant."""

    where: Authority
    wild: bool
    url: str


def names_of(source: Source) -> Iterator[SourceName]:
    """Yield the names under which agents reach a source: those of its URLs, and of `hosts`. A name
    may occur twice, first with the URL that connections to it lead to."""
    by_port: dict[int, list[str]] = {}
    for url in source.urls:
        own = upstream_parts(url).authority
        by_port.setdefault(own.port, []).append(url)
        yield SourceName(own, False, url)
    # Only HTTP URLs may leave out their port.
    usual = () if source.kind in UNREAD_KINDS else DEFAULT_PORTS.values()
    for pattern in patterns(source):
        ports = dict.fromkeys((*by_port, *usual)) if pattern.port is None else (pattern.port,)
        for port in ports:
            # The port tells which of the URLs is meant; any other may stand for each.
            for url in by_port.get(port, source.urls):
                yield SourceName(Authority(pattern.name, port), pattern.wild, url)


def _group(rows: Iterable[_Row]) -> SourceGroup:
    return SourceGroup(tuple(sorted(rows, key=lambda row: -len(row.below))))


def _order(row: _Row) -> tuple[int, int, int, int]:
    pattern = row.host
    # An exact name, then a wildcard, then no host at all.
    kind = 2 if pattern is None else int(pattern.wild)
    name = 0 if pattern is None else -len(pattern.name)
    return kind, name, int(row.exact is None), -len(row.below)


def _below(segments: Segments, target: Target) -> str | None:
    """Return the target without its first `segments`; None if its path doesn't begin with them."""
    if not segments:
        return target.forwarded
    count = len(segments)
    if target.segments[:count] != segments:
        return None
    # Built from the segments that were compared: the source must get nothing else (B 11).
    path = "/" + "/".join(encode_segment(each) for each in target.segments[count:])
    return path if target.query is None else f"{path}?{target.query}"


AMBIGUOUS = SourceGroup(())
"""The result of `TcpSources.at` if several sources have the port, and none of them the address."""


class TcpSources:
    """Finds sources of the kinds `tcp` and `postgres` by port and, if several have the same port,
    by address. Ignores the other `sources`."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._by_port: dict[int, list[Source]] = {}
        self._others: dict[int, Source] = {}
        for source in sources:
            for port in dict.fromkeys(name.where.port for name in names_of(source)):
                if source.kind in UNREAD_KINDS:
                    self._by_port.setdefault(port, []).append(source)
                else:
                    self._others.setdefault(port, source)

    def at(self, original: Authority) -> SourceGroup | None:
        """Return the source for a connection that was going to the address and port `original`;
        None if no `tcp` source has that port; `AMBIGUOUS` if several have it and none has the
        address. The address matters only if several sources have the port."""
        sources = self._by_port.get(original.port)
        if sources is None:
            return None
        if len(sources) > 1:
            return SourceTable(sources).at(original) or AMBIGUOUS
        # Found by its own address: the agent may have reached any that its name resolves to.
        return SourceTable(sources).at(upstream_parts(sources[0].upstream).authority)

    def clashes(self) -> Iterator[tuple[Source, Source, int]]:
        """Yield pairs of sources that can't be told apart, with their port. At least one of each
        pair is a `tcp` source."""
        for port, sources in self._by_port.items():
            # Every redirected connection to this port goes to the `tcp` source.
            if port in self._others:
                yield sources[0], self._others[port], port
            # Only an address tells the sources at one port apart.
            vague = [each for each in sources if not _has_address(each, port)]
            if len(sources) > 1 and vague:
                first = sources[0] if vague[0] is not sources[0] else sources[1]
                yield first, vague[0], port


def _has_address(source: Source, port: int) -> bool:
    """Return whether one of the source's names at this port is an IP address."""
    hosts = [name.where.host for name in names_of(source) if name.where.port == port]
    return any(":" in host or host.rpartition(".")[2].isdigit() for host in hosts)
