"""The base of every router of requests: a request goes to the pipeline of the source that it is
for, or is refused and recorded. How the source is found is left to subclasses."""

from collections.abc import Coroutine, Mapping
from typing import Any

from policies.ground.errors import Malformed
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.authority import Authority, authority
from sidecar.http.headers import RequestHead
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.protocols.messages import SourceRef
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.messages.request_reader import read_head
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.source_endpoint import SourceEndpoint
from sidecar.proxy.routing.source_lookup import FoundSource
from sidecar.proxy.routing.unknown_destination import UnknownDestination


class SourceRouter:
    """Routes the requests of one port or connection to `endpoints`, by the alias of their source.
    `source` is where a request leads that can't be read; None where that is unknown."""

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
        """Answers one request. Every refusal has been recorded."""
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
        """The source, and the target below its path. Raises `Malformed` and `Refused`."""
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
