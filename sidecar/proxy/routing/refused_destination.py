"""Denies requests and connections that lead to no configured source. Also denies requests that
reach a source's own port under a name that isn't the port's, or that a web page of another site
sent.

Requests without a configured source are recorded under the name that was asked for
(`<scheme>://<host>:<port>`) or the name of the port where they arrived, at the highest level, since
nothing is known about what lies there. No policy allows them, and nothing is connected. Agents send
no key to a source's own port, so the name is all that tells a web page in a browser of this machine
from an agent.
"""

import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from policies.definitions.model import Sensitivity
from policies.ground.addresses import ListenAddress
from policies.ground.errors import Malformed, SluiceError
from sidecar.enforce import Enforcer
from sidecar.http.attribution import Attribution, attribution
from sidecar.http.authority import Authority
from sidecar.http.headers import RequestHead
from sidecar.http.port_names import ForeignRequest, PortNames
from sidecar.http.server.request import Answer, HttpRequest, Serve
from sidecar.live_keys import AgentIdentity
from sidecar.metrics.metrics import Counter
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.local_response import LocalResponse
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Authorizer, Refused
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.settings.model import Source

UNKNOWN = "unknown_destination"
NAME_MISMATCH = "name_mismatch"

_KIND = "web"
_LEVEL: Sensitivity = "critical"


def requested_source(scheme: str, where: Authority | str) -> SourceRef:
    """Return the source for the destination that was asked for, named as in the audit trail, at the
    highest level."""
    return SourceRef(f"{scheme}://{where}", _LEVEL)


class UnknownDestination:
    """Refuses requests that lead to no configured source, on one listening port. The audit trail
    names the port `port_name`."""

    def __init__(self, port_name: str, agent: AgentIdentity, enforcer: Enforcer) -> None:
        self._metrics = ProxyMetrics(enforcer.metrics, _KIND)
        self._authorizer = Authorizer(_KIND, requested_source(_KIND, port_name), agent, enforcer)
        self.default = Attribution(agent.default_user, None, None, None)
        """The attribution of a request that names no user."""

    def who(
        self, head: RequestHead, source: SourceRef | None = None, default: Attribution | None = None
    ) -> Attribution:
        """Return the attribution (user, session and task) of the request; `default` if the request
        names no user. Raises `Refused`, for `source`, if it can't be read."""
        try:
            return attribution(head, default or self.default)
        except Malformed as error:
            raise self.unreadable(error.message, source) from error

    def unreadable(self, reason: str, source: SourceRef | None = None) -> Refused:
        """Return the refusal of a request that can't be read. With it, the connection closes: it is
        no longer certain where the next request begins."""
        return Refused(400, UNREADABLE, reason, self.default, source=source, close=True)

    def no_source(self, reason: str, who: Attribution, source: SourceRef | None = None) -> Refused:
        return Refused(403, UNKNOWN, reason, who, source=source)

    async def record(self, policy_name: str, reason: str, source: SourceRef | None = None) -> None:
        """Record a denial on a connection that gets no answer."""
        self._metrics.count_request("DENY", 0)
        await self._authorizer.record(
            Refused(403, policy_name, reason, self.default, source=source)
        )

    async def refuse(self, request: HttpRequest, refused: Refused) -> LocalResponse:
        """Record the refusal, and return the response to the agent."""
        try:
            denied = await self._authorizer.refuse(refused, request.method, request.target)
        except SluiceError as error:
            self._metrics.count_request("DENY", error.status)
            # The record was lost. The request stays refused, with the spool's 503. With its body
            # unread, the connection can't carry another request.
            return LocalResponse.of_error(error, close=not request.body.complete)
        response = LocalResponse.of_denial(
            denied.status, denied.decision, denied.event_id, close=denied.close
        )
        self._metrics.count_request("DENY", response.status)
        return response


FOREIGN_ORIGIN = "foreign_origin"
log = logging.getLogger(__name__)


def names_of_port(
    listen: ListenAddress, sources: Sequence[Source], hosts: Iterable[str]
) -> PortNames:
    """Return the names of the port `listen`, which leads to `sources`; `hosts` are the sidecar's
    own names."""
    named = [host for source in sources for host in source.hosts]
    buckets = any(source.kind == "s3" for source in sources)
    return PortNames(listen, [*hosts, *named], buckets=buckets)


class NamedPort:
    """Passes a request on to `serve` if it reaches the port under one of its `names` and no web
    page of another site sent it, and refuses it otherwise (see `http/port_names.py`). `refused`
    counts the refusals by their cause. Requests that can't be read are recorded for the source
    `whole`, which is None if the port leads to several sources."""

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
        """Answer one request. A refusal has been recorded before it is answered."""
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
