"""Several data sources on one listening address: finds the one that a request is for, by the host
it names and the path it asks for, and leaves the rest to that source's gate.

The path that leads to a source is taken off here, on the canonical form: the gate judges, and the
data source gets, what is left. Knows the directory. Knows nothing of what is asked.
"""

from collections.abc import Mapping, Sequence

from policies.ground.errors import Malformed
from policies.ground.listen_address import ListenAddress
from sidecar.http.authority import Authority, authority
from sidecar.http.request_target import canonical
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import SharedPort
from sidecar.proxy.routing.unknown_destination import UnknownDestination, place_of


class VirtualHosts:
    """The sources at `listen`."""

    def __init__(
        self, listen: ListenAddress, guarded: Sequence[SourceEndpoint], outside: UnknownDestination
    ) -> None:
        self._listen = listen
        self._shared = SharedPort([each.source for each in guarded])
        self._guarded: Mapping[str, SourceEndpoint] = {each.source.alias: each for each in guarded}
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
        head = outside.read(request)
        who = outside.who(head)
        host: Authority | None = None
        try:
            raw = head.one(b"host")
            # Port 0 is none that anybody could name.
            host = None if raw is None else authority(raw.decode("latin-1"), default=0)
            target = canonical(request.target)
        except Malformed as error:
            raise outside.unreadable(error.message) from error
        found = self._shared.find(host, target)
        if found is None:
            place = place_of("http", self._where(host))
            reason = "no source that listens here has this name and path"
            raise outside.unknown(reason, who, place)
        request.target = found.target
        return self._guarded[found.source.alias]

    def _where(self, host: Authority | None) -> Authority:
        if host is None:
            return Authority(self._listen.host, self._listen.port)
        return host._replace(port=host.port or self._listen.port)
