"""The HTTP forward proxy, which agents use through `HTTP_PROXY`. A request's target names the data
source by the address that the agent wants to reach. A target that leads to no configured source is
denied.

A request in absolute form goes to that source's pipeline, and the data source gets the path below
its own address (RFC 9112 section 3.2.2). `tunnel/connect.py` handles CONNECT.

Knows how sources are found, and the forms of a target. Knows nothing of what a request asks for.
"""

import re
from collections.abc import Coroutine
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution
from sidecar.http.authority import DEFAULT_PORTS, Authority, authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.routing.source_lookup import FoundSource, SourceGroup, upstream_parts
from sidecar.proxy.routing.source_router import SourceRouter, check_host
from sidecar.proxy.routing.unknown_destination import UnknownDestination, requested_source
from sidecar.proxy.tunnel.connect import Connect
from sidecar.proxy.tunnel.fixed_destination import NamedDestinations

# The authority is printable ASCII here; `parse_absolute` refuses userinfo.
_ABSOLUTE = re.compile(r"(https?)://([!-~]+?)((?:[/?#\\].*)?)\Z", re.IGNORECASE | re.DOTALL)


class AbsoluteForm(NamedTuple):
    """A target in absolute form, parsed. `rest` is its path and query."""

    scheme: str
    where: Authority
    rest: str


def parse_absolute(target: str) -> AbsoluteForm:
    """Parses a target in absolute form. Raises `Malformed` for any other form, and for a target
    that could be read in two ways."""
    found = _ABSOLUTE.match(target)
    if found is None:
        raise Malformed("the target is not `http://` or `https://` with a host and a path")
    scheme, where, rest = found.groups()
    if "@" in where:
        # Clients disagree on where userinfo ends, and so on which host the target names.
        raise Malformed("the target contains a user name")
    scheme = scheme.lower()
    # An empty path means `/` (RFC 9110 section 4.2.3).
    rest = rest if rest.startswith("/") else f"/{rest}"
    return AbsoluteForm(scheme, authority(where, DEFAULT_PORTS[scheme]), rest)


class ForwardProxy(SourceRouter):
    """Routes the requests of one port to their sources."""

    def __init__(
        self, destinations: NamedDestinations, unknown: UnknownDestination, connect: Connect
    ) -> None:
        super().__init__(unknown, destinations.endpoints)
        self._table = destinations.table
        self._connect = connect

    def serve(self, request: HttpRequest) -> Coroutine[Any, Any, LocalResponse | ResponseSent]:
        if not request.fault and request.method == "CONNECT":
            return self._connect.serve(request)
        return super().serve(request)

    def _find(self, request: HttpRequest, head: RequestHead, who: Attribution) -> FoundSource:
        scheme, where, rest = parse_absolute(request.target)
        check_host(head, where, DEFAULT_PORTS[scheme])
        target = canonical(rest, opaque=self._table.opaque)
        group = self._table.at(where)
        found = None if group is None else _at_least_as_safe(group, scheme).find(target)
        if found is None:
            reason = "no configured source has this address and path"
            raise self._unknown.no_source(reason, who, requested_source(scheme, where))
        return found


def _at_least_as_safe(group: SourceGroup, scheme: str) -> SourceGroup:
    """The sources that speak HTTP, with TLS if the agent asked for TLS."""
    # Never the other way: an agent that asked for TLS must not be served over plain HTTP.
    return SourceGroup(
        tuple(
            row
            for row in group.rows
            if upstream_parts(row.source.upstream).scheme in ("https", scheme)
        )
    )
