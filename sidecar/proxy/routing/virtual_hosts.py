"""Several data sources on one listening address: finds the source that a request is for, by its
host and path. Knows nothing of what a request asks for.
"""

from collections.abc import Sequence

from policies.ground.listen_address import ListenAddress
from sidecar.http.attribution import Attribution
from sidecar.http.authority import Authority
from sidecar.http.headers import RequestHead
from sidecar.http.request_target import canonical
from sidecar.http.server.request import HttpRequest
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import FoundSource, SharedPort
from sidecar.proxy.routing.source_router import SourceRouter, requested_host
from sidecar.proxy.routing.unknown_destination import UnknownDestination, requested_source


class VirtualHosts(SourceRouter):
    """The sources that listen on `listen`."""

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
