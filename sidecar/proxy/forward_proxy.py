"""Serves as the HTTP forward proxy, which agents use through `HTTP_PROXY`, and handles CONNECT. The
request's target names the address that the agent wants to reach, and thereby the data source. A
target that leads to no configured source is denied.

A request in absolute form goes to that source's pipeline, and the data source gets the path below
its own address (RFC 9112 section 3.2.2).

CONNECT opens a tunnel to a configured source, and to nothing else (RFC 9110 section 9.3.6, RFC
9931). A refused CONNECT gets its response and the end of the connection; nothing that follows it is
read. A tunnel that will be passed through unread is decided and connected before it is granted, so
that the agent can read a denial. `tunnel/tunnel_dispatch.py` handles what the tunnel carries.

Knows how sources are found, and the forms of a target. Knows nothing of what a request asks for.
"""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, NamedTuple

from policies.ground.errors import Malformed, SluiceError
from sidecar.http.attribution import Attribution
from sidecar.http.authority import DEFAULT_PORTS, Authority, authority
from sidecar.http.headers import RequestHead, sort_request_fields
from sidecar.http.messages.request_parser import HTTP_2, HTTP_10, HTTP_11
from sidecar.http.request_target import canonical
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.proxy.connections import take_over
from sidecar.proxy.downstream import BackgroundTasks
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse, event_fields
from sidecar.proxy.pipeline.authorizer import Denied, Refused
from sidecar.proxy.pipeline.passthrough import AllowedTunnel
from sidecar.proxy.routing.refused_destination import UnknownDestination, requested_source
from sidecar.proxy.routing.source_lookup import FoundSource, SourceGroup, upstream_parts
from sidecar.proxy.routing.source_router import (
    Destination,
    NamedDestinations,
    SourceRouter,
    check_host,
)
from sidecar.proxy.tunnel.tunnel_dispatch import TunnelDispatch

# The error types of `Proxy-Status` (RFC 9209 section 2.3), by status.
_ERROR_TYPES = {
    400: b"http_request_error",
    403: b"http_request_denied",
    502: b"destination_unavailable",
    503: b"proxy_internal_error",
}


class Connect:
    """Answers the CONNECT requests of one port. `dispatch` handles the tunnels that are granted,
    and `unknown` refuses the other requests."""

    def __init__(
        self,
        dispatch: TunnelDispatch,
        unknown: UnknownDestination,
        background_tasks: BackgroundTasks,
        limits: ProxyLimits,
    ) -> None:
        self._dispatch = dispatch
        self._unknown = unknown
        self._background_tasks = background_tasks
        self._limits = limits

    async def serve(self, request: HttpRequest) -> LocalResponse | ResponseSent:
        """Answer one CONNECT. If it is granted, return when the tunnel has ended."""
        try:
            destination = self._find(request)
            tunnel = await self._decide(destination)
        except Refused as refused:
            return _refusal(request, await self._unknown.refuse(request, refused))
        except Denied as denied:
            response = LocalResponse.of_denial(denied.status, denied.decision, denied.event_id)
            return _refusal(request, response)
        except SluiceError as error:
            return _refusal(request, LocalResponse.of_error(error))
        try:
            agent, within = take_over(request, self._limits.buffer_bytes)
        except ConnectionError:
            # The tunnel was decided and connected. Dropping it records that nothing passed.
            if tunnel is not None:
                tunnel.drop()
            raise
        agent.transport.write(_granted(tunnel))
        # In a task of its own: if this request is cancelled, the tunnel is still recorded to its
        # end.
        running = self._background_tasks.run(self._dispatch.run(agent, within, destination, tunnel))
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            agent.transport.abort()
            raise
        return ResponseSent(keep_alive=False)

    def _find(self, request: HttpRequest) -> Destination:
        unknown, destinations = self._unknown, self._dispatch.destinations
        try:
            # Not `read_head`, which refuses every CONNECT.
            head = sort_request_fields(request.fields)
            where = _requested_authority(request, head)
        except Malformed as error:
            raise unknown.unreadable(error.message) from error
        source = requested_source("tcp", where)
        group = destinations.table.at(where)
        if group is None:
            reason = "no configured source has this address"
            raise unknown.no_source(reason, unknown.who(head, source), source)
        endpoint = destinations.sole_endpoint(group)
        who = unknown.who(head, source, None if endpoint is None else endpoint.who)
        return Destination(where, group, who)

    async def _decide(self, destination: Destination) -> AllowedTunnel | None:
        """Decide about the tunnel as a whole if it will be passed through unread, and open its
        upstream connection. Returns None if each request inside the tunnel will be decided
        instead."""
        passthrough = self._dispatch.passthrough(destination.group)
        return None if passthrough is None else await passthrough.open(destination.who)


def _granted(tunnel: AllowedTunnel | None) -> bytes:
    """Return the 200 response that grants a tunnel. If the source only reports denials and this
    tunnel would have been denied, a header field names that decision's event."""
    reported = [] if tunnel is None else [each for each in tunnel.decisions if each.report_only]
    fields = event_fields(reported[0].event_id, report_only=True) if reported else ()
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return b"HTTP/1.1 200 Connection established\r\n%b\r\n" % lines


def _requested_authority(request: HttpRequest, head: RequestHead) -> Authority:
    """Return the host and port that a CONNECT asks for. Raises `Malformed` if its framing can't be
    trusted."""
    version = request.version
    if version not in (HTTP_10, HTTP_11):
        raise Malformed(f"HTTP version {version} is not 1.0 or 1.1")
    for name in (b"transfer-encoding", b"content-length", b"upgrade", b"expect"):
        # A body or an upgrade would leave open where the tunnel's bytes begin.
        if name in head.read:
            raise Malformed(f"a CONNECT may not have the header `{name.decode()}`")
    if not request.target.isascii():
        raise Malformed("the target of a CONNECT must be `host:port` in ASCII")
    where = authority(request.target)
    # Only HTTP/1.1 requires it (RFC 9112 section 3.2).
    if version == HTTP_11 and b"host" not in head.read:
        raise Malformed("the header `host` is missing")
    check_host(head, where, where.port)
    return where


def _refusal(request: HttpRequest, response: LocalResponse) -> LocalResponse:
    """Return `response` as the refusal of a CONNECT. It ends the connection: the bytes after a
    refused CONNECT may be meant for the tunnel."""
    request.stop_reading()
    response.close = True
    error_type = _ERROR_TYPES.get(response.status)
    if error_type is not None:
        proxy_status = (b"Proxy-Status", b"sluice; error=" + error_type)
        response.fields = (*response.fields, proxy_status)
    return response


# The authority is printable ASCII here; `parse_absolute` refuses userinfo.
_ABSOLUTE = re.compile(r"(https?)://([!-~]+?)((?:[/?#\\].*)?)\Z", re.IGNORECASE | re.DOTALL)


class AbsoluteForm(NamedTuple):
    """A request target in absolute form (`http://host:port/path?query`), parsed. `rest` is its path
    and query."""

    scheme: str
    where: Authority
    rest: str


def parse_absolute(target: str) -> AbsoluteForm:
    """Parse a request target in absolute form. Raises `Malformed` for any other form, and for a
    target that could be read in two ways."""
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
    """Routes the requests of the forward proxy's port: `connect` answers CONNECT, and any other
    request goes to the pipeline of the source that its target names."""

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
        if request.version == HTTP_2:
            # It has the scheme of this port, and its authority as `host`.
            stated = (head.one(b"host") or b"").decode("latin-1")
            scheme, where, rest = "http", authority(stated, 80), request.target
        else:
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
    """Return the sources of `group` that speak HTTP; only those with TLS if the agent asked for
    TLS."""
    # Never the other way: an agent that asked for TLS must not be served over plain HTTP. What the
    # request asks for chooses among the source's URLs, so each of them has to be as safe.
    return SourceGroup(
        tuple(
            row
            for row in group.rows
            if all(upstream_parts(url).scheme in ("https", scheme) for url in row.source.urls)
        )
    )
