"""The base of every router of requests: a request goes to the pipeline of the source that it is
for, or is refused and recorded. How the source is found is left to subclasses."""

from policies.ground.errors import Malformed
from sidecar.http.authority import Authority, authority
from sidecar.http.headers import RequestHead
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.unknown_destination import UnknownDestination


class SourceRouter:
    """Routes the requests of one port or connection."""

    def __init__(self, unknown: UnknownDestination) -> None:
        self._unknown = unknown

    async def serve(self, request: HttpRequest) -> LocalResponse | ResponseSent:
        """Answers one request. Every refusal has been recorded."""
        try:
            endpoint = self._find(request)
        except Refused as refused:
            return await self._unknown.refuse(request, refused)
        return await endpoint.pipeline.serve(request)

    def _find(self, request: HttpRequest) -> SourceEndpoint:
        """The source's endpoint. Sets the request's target to what the source gets. Raises
        `Refused`."""
        raise NotImplementedError


def requested_host(head: RequestHead, default_port: int) -> Authority | None:
    """The server in the header `host`, with `default_port` if it states none; None without the
    header. Raises `Malformed`."""
    raw = head.one(b"host")
    return None if raw is None else authority(raw.decode("latin-1"), default_port)


def check_host(head: RequestHead, where: Authority, default_port: int) -> None:
    """Raises `Malformed` if the header `host` names another server than the target. RFC 9112
    section 3.2.2 has a proxy ignore `host` beside an absolute target; refusing it leaves nothing
    that two readers could read differently."""
    if requested_host(head, default_port) not in (None, where):
        raise Malformed("the header `host` names another server than the target")
