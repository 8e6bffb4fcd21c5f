"""HTTP on a connection that was redirected here: each request is for the source that its `Host`
names at the port that the connection was meant for.

The two must agree, and the address that was meant counts for nothing: it is never connected to
(proxy.md A4, B 19 and 20). Knows the directory. Knows nothing of what is asked.
"""

from policies.ground.errors import Malformed
from sidecar.http.authority import DEFAULT_PORTS, Authority, authority
from sidecar.http.request_target import canonical
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.unknown_destination import NAME_MISMATCH, UnknownDestination, place_of
from sidecar.proxy.tunnel.fixed_destination import NamedDestinations

_SCHEME = "http"


class RedirectedHttp:
    """Answers the requests of one connection that was `meant` for an address and port."""

    def __init__(
        self, meant: Authority, places: NamedDestinations, outside: UnknownDestination
    ) -> None:
        self._meant = meant
        self._places = places
        self._outside = outside

    async def serve(self, request: AgentRequest) -> LocalResponse | ResponseSent:
        """Answers one request. Whatever is refused has been recorded."""
        try:
            guarded = self._found(request)
        except Refused as refused:
            return await self._outside.refuse(request, refused)
        return await guarded.gate.serve(request)

    def _found(self, request: AgentRequest) -> SourceEndpoint:
        outside = self._outside
        place = place_of(_SCHEME, self._meant)
        head = outside.read(request, place)
        who = outside.who(head, place)
        raw = head.one(b"host")
        if raw is None:
            raise outside.unknown("the request names no host", who, place)
        try:
            host = authority(raw.decode("latin-1"), DEFAULT_PORTS[_SCHEME])
            target = canonical(request.target)
        except Malformed as error:
            raise outside.unreadable(error.message, place) from error
        place = place_of(_SCHEME, host)
        if host.port != self._meant.port:
            reason = "the header `host` names another port than the connection was meant for"
            raise Refused(403, NAME_MISMATCH, reason, who, place=place)
        group = self._places.names.at(host)
        found = None if group is None else group.find(target)
        if found is None or found.source.kind == "tcp":
            reason = "no source of the configuration has this name, port and path"
            raise outside.unknown(reason, who, place)
        request.target = found.target
        return self._places.guarded[found.source.alias]
