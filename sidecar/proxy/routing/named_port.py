"""Refuses requests that reach a source's own port under a name that isn't the port's, or that a
page of another site sent. Agents send no key there, so the name is all that tells a web page in a
browser of this machine from an agent. Knows no source.
"""

import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from policies.ground.errors import Malformed
from policies.ground.listen_address import ListenAddress
from sidecar.http.port_names import ForeignRequest, PortNames
from sidecar.http.server.request import HttpRequest, Serve
from sidecar.http.server.response import Answer
from sidecar.metrics.counters import Counter
from sidecar.protocols.messages import SourceRef
from sidecar.proxy.pipeline.authorizer import Refused
from sidecar.proxy.routing.unknown_destination import UNKNOWN, UnknownDestination, requested_source
from sidecar.settings.model import Source

FOREIGN_ORIGIN = "foreign_origin"
log = logging.getLogger(__name__)


def names_of_port(
    listen: ListenAddress, sources: Sequence[Source], hosts: Iterable[str]
) -> PortNames:
    """The names of the port `listen`, which leads to `sources`; `hosts` are the sidecar's."""
    named = [host for source in sources for host in source.hosts]
    buckets = any(source.kind == "s3" for source in sources)
    return PortNames(listen, [*hosts, *named], buckets=buckets)


class NamedPort:
    """Passes a request on to `serve` if it is for the port by one of `names`. `refused` counts the
    others by their cause; `whole` is what a request may be for that can't be read, None if the port
    leads to several sources."""

    def __init__(
        self,
        names: PortNames,
        serve: Serve,
        unknown: UnknownDestination,
        refused: Counter,
        whole: SourceRef | None,
    ) -> None:
        self._whole = whole
        self._names = names
        self._serve = serve
        self._unknown = unknown
        self._refused = refused

    def serve(self, request: HttpRequest) -> Coroutine[Any, Any, Answer]:
        """Answers one request. Every refusal has been recorded."""
        # INVARIANT: a head is remembered behind this check alone, and its memory is the port's own.
        # So a head that is known has passed.
        if request.known or request.fault:
            return self._serve(request)
        try:
            self._names.check_host(request.fields, request.local_host)
            self._names.check_origin(request.fields)
        except ForeignRequest as error:
            return self._refuse(request, self._foreign(error), error.cause)
        except Malformed as error:
            return self._refuse(request, self._unknown.unreadable(error.message, self._whole), None)
        return self._serve(request)

    def _refuse(
        self, request: HttpRequest, refused: Refused, cause: str | None
    ) -> Coroutine[Any, Any, Answer]:
        if request.offers_upgrade:
            # RFC 9931: what follows may be tunnelled data, and must not be read as a request.
            request.stop_reading()
        if cause is not None:
            self._refused.add(cause)
            log.info("a request to a source's port was refused: %s", refused.reason)
        return self._unknown.refuse(request, refused)

    def _foreign(self, error: ForeignRequest) -> Refused:
        who = self._unknown.default
        if error.cause == "origin":
            return Refused(403, FOREIGN_ORIGIN, error.message, who, close=True)
        where = error.host._replace(port=error.host.port or self._names.port)
        source = requested_source("http", where)
        return Refused(403, UNKNOWN, error.message, who, source=source, close=True)
