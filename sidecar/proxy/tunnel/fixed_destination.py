"""Requests on a connection whose destination is settled: inside a tunnel, terminated or plain. Each
request goes to the pipeline of its source. Its `Host` must name the same destination, or the agent
would reach a server that the tunnel wasn't opened to (`proxy/RULES.md`, B19).

Knows the destination. Knows nothing of what a request asks for.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sidecar.http.attribution import Attribution
from sidecar.http.authority import DEFAULT_PORTS, Authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.http.server.request import HttpRequest
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import FoundSource, SourceGroup, SourceTable
from sidecar.proxy.routing.source_router import SourceRouter, requested_host
from sidecar.proxy.routing.unknown_destination import (
    NAME_MISMATCH,
    UnknownDestination,
    requested_source,
)


class Destination(NamedTuple):
    """Where a connection leads: the sources of `group` at `where`, on behalf of `who`."""

    where: Authority
    group: SourceGroup
    who: Attribution


class NamedDestinations(NamedTuple):
    """Every source that can be reached by name: `table` finds it, `endpoints` holds it by alias."""

    table: SourceTable
    endpoints: Mapping[str, SourceEndpoint]

    def sole_endpoint(self, group: SourceGroup) -> SourceEndpoint | None:
        """The endpoint if the group has only one source; None if the path has to decide."""
        return None if group.sole is None else self.endpoints[group.sole.alias]


class FixedDestination(SourceRouter):
    """Answers the requests of one connection, which speaks `scheme`."""

    def __init__(
        self,
        destination: Destination,
        destinations: NamedDestinations,
        unknown: UnknownDestination,
        scheme: str,
    ) -> None:
        super().__init__(
            unknown, destinations.endpoints, requested_source(scheme, destination.where)
        )
        self._destination = destination
        self._table = destinations.table
        self._scheme = scheme

    def _find(self, request: HttpRequest, head: RequestHead, who: Attribution) -> FoundSource:
        destination = self._destination
        # HTTP/1.0 may leave out `Host`: the connection's destination stands.
        host = requested_host(head, DEFAULT_PORTS[self._scheme]) or destination.where
        target = canonical(request.target, opaque=self._table.opaque)
        group = self._table.at(host)
        # Compares the sources, not the spelling: one source may have several names.
        if group is None or group.aliases != destination.group.aliases:
            reason = "the header `host` names another server than the connection leads to"
            named = requested_source(self._scheme, host)
            raise Refused(403, NAME_MISMATCH, reason, who, source=named)
        found = destination.group.find(target)
        # HTTP must not reach a server of another protocol, which might run what it reads.
        if found is None or found.source.kind == "tcp":
            reason = "no source at this destination has this path"
            raise self._unknown.no_source(reason, who, self._source)
        return found
