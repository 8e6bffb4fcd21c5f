"""The sources whose connections nobody reads (kind `tcp`), by the port that a redirected connection
was meant for. Such a data source may speak first: nothing that the agent says can be waited for, so
port and address are all there is.

Pure. Which connection is meant is settled here; what it reaches is what the configuration says.
"""

from collections.abc import Iterator, Sequence

from sidecar.http.authority import Authority
from sidecar.proxy.routing.source_lookup import SourceGroup, SourceTable, names_of, upstream_parts
from sidecar.settings.model import Source

NOBODY = SourceGroup(())


class TcpSources:
    """Of all `sources`, those of the kind `tcp`."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._ports: dict[int, list[Source]] = {}
        self._others: dict[int, Source] = {}
        for source in sources:
            for port in dict.fromkeys(name.port for name, _ in names_of(source)):
                if source.kind == "tcp":
                    self._ports.setdefault(port, []).append(source)
                else:
                    self._others.setdefault(port, source)

    def at(self, meant: Authority) -> SourceGroup | None:
        """The source that a connection to this address and port means; None where the port is that
        of none, `NOBODY` where it is that of several and the address is none of theirs."""
        there = self._ports.get(meant.port)
        if there is None:
            return None
        if len(there) > 1:
            return SourceTable(there).at(meant) or NOBODY
        return SourceTable(there).at(upstream_parts(there[0].upstream).authority)

    def clashes(self) -> Iterator[tuple[Source, Source, int]]:
        """A source of the kind, another that can't be told from it, and the port they share."""
        for port, there in self._ports.items():
            if port in self._others:
                yield there[0], self._others[port], port
            vague = [each for each in there if not _addressed(each, port)]
            if len(there) > 1 and vague:
                first = there[0] if vague[0] is not there[0] else there[1]
                yield first, vague[0], port


def _addressed(source: Source, port: int) -> bool:
    """Whether one of its names at this port is an address."""
    hosts = [name.host for name, _ in names_of(source) if name.port == port]
    return any(":" in host or host.rpartition(".")[2].isdigit() for host in hosts)
