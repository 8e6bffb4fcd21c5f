"""Routes each request to the pipeline of the source that it is for, or refuses and records it:

    SharedPortRouter    several sources on one listening address, by host and path
    TunnelRouter        inside a tunnel, terminated or plain: `Host` must name the destination, or
                        the agent would reach a server that the tunnel wasn't opened to
                        (`proxy/RULES.md`, B19)
    RedirectedRouter    the source that `Host` names at the connection's original port; the original
                        address decides nothing, and is never connected to (`proxy/RULES.md`,
                        Tunnels and redirects)

Knows nothing of what a request asks for.
"""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.authority import DEFAULT_PORTS, Authority, authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages.request_reader import read_head
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.refused_destination import (
    NAME_MISMATCH,
    UnknownDestination,
    requested_source,
)
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import FoundSource, SharedPort, SourceGroup, SourceTable
from sidecar.settings.model import UNREAD_KINDS


class SourceRouter:
    """Base class of the routers. Passes each request on one port or connection to the pipeline of
    its source. `endpoints` holds the endpoints by alias. `source` is the source under which
    unreadable requests are recorded; None if it is unknown."""

    def __init__(
        self,
        unknown: UnknownDestination,
        endpoints: Mapping[str, SourceEndpoint],
        source: SourceRef | None = None,
    ) -> None:
        self._unknown = unknown
        self._endpoints = endpoints
        self._source = source

    def serve(self, request: HttpRequest) -> Coroutine[Any, Any, LocalResponse | ResponseSent]:
        """Answer one request. A refusal has been recorded before it is answered."""
        unknown = self._unknown
        try:
            head = read_head(request)
            found = self._find(request, head, attribution(head, unknown.default))
        except Malformed as error:
            return unknown.refuse(request, unknown.unreadable(error.message, self._source))
        except Refused as refused:
            return unknown.refuse(request, refused)
        # The path that leads to the source is gone from the canonical form. The pipeline decides
        # about the rest, and the data source gets the same.
        request.target = found.target
        return self._endpoints[found.source.alias].pipeline.serve(request)

    def _find(self, request: HttpRequest, head: RequestHead, who: Attribution) -> FoundSource:
        """Return the source of the request, and the target below the source's path. Raises
        `Malformed` and `Refused`."""
        raise NotImplementedError


def requested_host(head: RequestHead, default_port: int) -> Authority | None:
    """Return the host and port in the header `host`, with `default_port` if it states no port; None
    without the header. Raises `Malformed`."""
    raw = head.one(b"host")
    return None if raw is None else authority(raw.decode("latin-1"), default_port)


def check_host(head: RequestHead, where: Authority, default_port: int) -> None:
    """Raise `Malformed` if the header `host` names another server than the target. RFC 9112 section
    3.2.2 has a proxy ignore `host` beside an absolute target; refusing the request instead leaves
    nothing that two readers could understand differently."""
    if requested_host(head, default_port) not in (None, where):
        raise Malformed("the header `host` names another server than the target")


class SharedPortRouter(SourceRouter):
    """Routes the requests that arrive at the address `listen`, which several sources share, by host
    and path."""

    def __init__(
        self,
        listen: ListenAddress,
        endpoints: Sequence[SourceEndpoint],
        unknown: UnknownDestination,
    ) -> None:
        super().__init__(unknown, {each.source.alias: each for each in endpoints})
        self._listen = listen
        self._shared_port = SharedPort([each.source for each in endpoints])

    def _find(self, request: HttpRequest, head: RequestHead, who: Attribution) -> FoundSource:
        # Port 0 stands for "none given": no request can name it.
        host = requested_host(head, 0)
        target = canonical(request.target, opaque=self._shared_port.opaque)
        found = self._shared_port.find(host, target)
        if found is None:
            source = requested_source("http", self._requested(host))
            reason = "no source on this port has this name and path"
            raise self._unknown.no_source(reason, who, source)
        return found

    def _requested(self, host: Authority | None) -> Authority:
        if host is None:
            return Authority(self._listen.host, self._listen.port)
        return host._replace(port=host.port or self._listen.port)


class Destination(NamedTuple):
    """The destination of a connection: the host and port `where`, the sources of `group` there, and
    the attribution `who` of what is sent."""

    where: Authority
    group: SourceGroup
    who: Attribution


class NamedDestinations(NamedTuple):
    """All sources that agents can reach by name: `table` finds them, `endpoints` holds their
    endpoints by alias."""

    table: SourceTable
    endpoints: Mapping[str, SourceEndpoint]

    def sole_endpoint(self, group: SourceGroup) -> SourceEndpoint | None:
        """Return the endpoint if the group has only one source; None if the path has to decide."""
        return None if group.sole is None else self.endpoints[group.sole.alias]


class TunnelRouter(SourceRouter):
    """Routes the requests inside a tunnel, whose destination was fixed when it was opened. `scheme`
    is `http` or `https`."""

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
        if found is None or found.source.kind in UNREAD_KINDS:
            reason = "no source at this destination has this path"
            raise self._unknown.no_source(reason, who, self._source)
        return found


_SCHEME = "http"


class RedirectedRouter(SourceRouter):
    """Routes the requests of one redirected connection, which was going to the address and port
    `original`."""

    def __init__(
        self, original: Authority, destinations: NamedDestinations, unknown: UnknownDestination
    ) -> None:
        super().__init__(unknown, destinations.endpoints, requested_source(_SCHEME, original))
        self._original = original
        self._table = destinations.table

    def _find(self, request: HttpRequest, head: RequestHead, who: Attribution) -> FoundSource:
        host = requested_host(head, DEFAULT_PORTS[_SCHEME])
        if host is None:
            # HTTP/1.0 may leave out `Host`. The original address must not take its place.
            raise self._unknown.no_source("the request names no host", who, self._source)
        target = canonical(request.target, opaque=self._table.opaque)
        source = requested_source(_SCHEME, host)
        # The port is the one thing about the original destination that is certain. A `Host` without
        # a port means 80.
        if host.port != self._original.port:
            reason = "the header `host` names another port than the connection was going to"
            raise Refused(403, NAME_MISMATCH, reason, who, source=source)
        group = self._table.at(host)
        found = None if group is None else group.find(target)
        if found is None or found.source.kind in UNREAD_KINDS:
            reason = "no configured source has this name, port and path"
            raise self._unknown.no_source(reason, who, source)
        return found
