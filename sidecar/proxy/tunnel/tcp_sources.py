"""Finds the source of the kind `tcp` that a redirected connection is for, by its original port.
Such a server may speak first, so the sidecar can't wait for the agent's first bytes. It knows only
the original port and address.

Pure. The configuration says where the connection then leads.
"""

from collections.abc import Iterator, Sequence

from sidecar.http.authority import Authority
from sidecar.proxy.routing.source_lookup import SourceGroup, SourceTable, names_of, upstream_parts
from sidecar.settings.model import Source

AMBIGUOUS = SourceGroup(())
"""Several sources have the port, and none of them the address."""


class TcpSources:
    """The sources of the kind `tcp` among `sources`."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._by_port: dict[int, list[Source]] = {}
        self._others: dict[int, Source] = {}
        for source in sources:
            for port in dict.fromkeys(name.port for name, _ in names_of(source)):
                if source.kind == "tcp":
                    self._by_port.setdefault(port, []).append(source)
                else:
                    self._others.setdefault(port, source)

    def at(self, original: Authority) -> SourceGroup | None:
        """The source for a connection that was going to `original`; None if no source of the kind
        has that port. The address matters only if several have it."""
        sources = self._by_port.get(original.port)
        if sources is None:
            return None
        if len(sources) > 1:
            return SourceTable(sources).at(original) or AMBIGUOUS
        # Found by its own address: the agent may have reached any that its name resolves to.
        return SourceTable(sources).at(upstream_parts(sources[0].upstream).authority)

    def clashes(self) -> Iterator[tuple[Source, Source, int]]:
        """Pairs of sources that nothing tells apart, one or both of them `tcp`, and their port."""
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
    """Whether one of the source's names at this port is an address."""
    hosts = [name.host for name, _ in names_of(source) if name.port == port]
    return any(":" in host or host.rpartition(".")[2].isdigit() for host in hosts)
