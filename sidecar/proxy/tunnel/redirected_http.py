"""HTTP on a connection that was redirected here: each request is for the source that its `Host`
names at the connection's original port. The original address decides nothing, and is never
connected to (`proxy/RULES.md`, Tunnels and redirects). Knows nothing of what a request asks for.
"""

from sidecar.http.attribution import Attribution
from sidecar.http.authority import DEFAULT_PORTS, Authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.http.server.request import HttpRequest
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_lookup import FoundSource
from sidecar.proxy.routing.source_router import SourceRouter, requested_host
from sidecar.proxy.routing.unknown_destination import (
    NAME_MISMATCH,
    UnknownDestination,
    requested_source,
)
from sidecar.proxy.tunnel.fixed_destination import NamedDestinations

_SCHEME = "http"


class RedirectedHttp(SourceRouter):
    """Answers the requests of one connection, which was going to `original`."""

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
        if found is None or found.source.kind == "tcp":
            reason = "no configured source has this name, port and path"
            raise self._unknown.no_source(reason, who, source)
        return found
