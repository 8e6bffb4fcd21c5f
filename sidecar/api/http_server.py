"""Opens one of the sidecar's own ports and limits its connections. Keeps a few places for probes
beyond that limit: an agent that holds all places must not get the sidecar restarted by the kubelet,
nor hide it from Prometheus.

Each probe connection gets one answer, if it asks for one of the paths of probes. If all places for
probes are taken, the oldest connection is ended for the next one, so connections that are only held
can't keep a probe out. A connection's protocol is chosen when the connection is made, and not when
it is accepted: the event loop accepts many at once, and each choice depends on the places that the
others have taken.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from policies.ground.addresses import EVERY, ListenAddress
from policies.ground.connection_budget import HEAD_BYTES, ConnectionBudget, Slot
from policies.ground.process.sockets import hosts_to_bind
from sidecar.http.client.egress_guard import LoopGuard
from sidecar.http.http2.session import MAX_STREAMS
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.connections import Connections
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.server.request import (
    Answer,
    Flow,
    HttpRequest,
    Response,
    ResponseSent,
    Serve,
    ServerLimits,
    Service,
)
from sidecar.http.tls_layer import TlsLayer


class Arrival(asyncio.Protocol):
    """A protocol for new connections, which hands each one over to the protocol that `choose`
    returns."""

    __slots__ = ("_choose",)

    def __init__(self, choose: Callable[[], asyncio.Protocol]) -> None:
        self._choose = choose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        chosen = self._choose()
        # uvloop's transports don't inherit from asyncio's.
        cast(asyncio.Transport, transport).set_protocol(chosen)
        chosen.connection_made(transport)


PROBE_PLACES = 32
PROBE_PATHS = frozenset(
    ("/health", "/health/ready", "/metrics", "/quitquitquit", "/grpc.health.v1.Health/Check")
)

_PROBE_HEAD_SECONDS = 5.0
"""The seconds within which the head of a probe's request must arrive."""


class ProbeBudget(ConnectionBudget):
    """The budget for probe connections: `places` of them, besides the connections in
    `all_ports`."""

    __slots__ = ("all_ports", "taken")

    def __init__(self, all_ports: ConnectionBudget, places: int = PROBE_PLACES) -> None:
        super().__init__(places, places * HEAD_BYTES)
        self.all_ports = all_ports
        self.cut_off = all_ports.cut_off
        self.taken: dict[_ProbeSlot, Callable[[], None]] = {}
        """The callbacks that end each open probe connection, the oldest first."""

    def slot(self) -> Slot:
        return _ProbeSlot(self)


class _ProbeSlot(Slot):
    __slots__ = ("_probes",)

    def __init__(self, budget: ProbeBudget) -> None:
        super().__init__(budget)
        self._probes = budget

    def take(self, abort: Callable[[], None]) -> bool:
        probes = self._probes
        if probes.open >= probes.most:
            oldest = next(iter(probes.taken))
            end = probes.taken[oldest]
            oldest.leave()
            end()
            probes.all_ports.refused += 1
        probes.taken[self] = abort
        return super().take(abort)

    def leave(self) -> None:
        self._probes.taken.pop(self, None)
        super().leave()


def probe_connections(service: Service) -> Connections:
    """Return the connections that the port of `service` accepts beyond its limit. They serve probes
    only."""

    def serve(request: HttpRequest) -> Coroutine[Any, Any, Answer]:
        request.stop_reading()
        if request.target.partition("?")[0] in PROBE_PATHS:
            return service.serve(request)
        service.budget.refused += 1
        return _ended()

    limits = service.limits._replace(idle_seconds=_PROBE_HEAD_SECONDS)
    budget = ProbeBudget(service.budget)
    return Connections(service._replace(serve=serve, limits=limits, flow=Flow(), budget=budget))


async def _ended() -> Answer:
    return ResponseSent(keep_alive=False)


log = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 60.0
"""The most seconds that a connection may be idle, and that a request's head may take to arrive."""

_HANDSHAKE_SECONDS = 10.0
_MAX_LINE = 8190
_MAX_FIELDS = 128


class Answering(Protocol):
    @property
    def serve(self) -> Serve:
        """Answer one request."""

    def failed(self, request: HttpRequest, /) -> Response | ResponseSent:
        """Answer a request for which `serve` itself has failed."""


class HttpServer:
    """A listening port whose requests `dispatcher` answers. Accepts connections within the `budget`
    that all ports share, and probes beyond it. With `tls` it serves HTTPS only. A connection of
    HTTP/2 may have `streams` requests at once."""

    def __init__(
        self,
        listen: ListenAddress,
        dispatcher: Answering,
        loop_guard: LoopGuard,
        heads: HeadCache,
        budget: ConnectionBudget,
        tls: ssl.SSLContext | None = None,
        streams: int = MAX_STREAMS,
    ) -> None:
        limits = ServerLimits(
            HeadLimits(_MAX_LINE, _MAX_LINE, _MAX_FIELDS),
            buffer_bytes=64 * 1024,
            idle_seconds=KEEPALIVE_SECONDS,
            lingering_seconds=2.0,
            half_close_seconds=10.0,
            write_seconds=60.0,
            streams=streams,
        )
        # A client that hangs up must not cancel its request: the record of its decision may be on
        # the way to disk.
        service = Service(
            dispatcher.serve,
            dispatcher.failed,
            limits,
            Flow(),
            cancels=False,
            heads=heads,
            budget=budget,
            # Nothing here depends on it, and Envoy states `http` above TLS too.
            any_scheme=True,
        )
        self._connections = Connections(service)
        self._probes = probe_connections(service)
        self._budget = budget
        self._listen = listen
        self._loop_guard = loop_guard
        self._tls = tls
        self._listening: asyncio.Server | None = None

    def __call__(self) -> asyncio.Protocol:
        return Arrival(self._protocol)

    def _protocol(self) -> asyncio.Protocol:
        budget = self._budget
        connections = self._connections if budget.open < budget.most else self._probes
        if self._tls is None:
            return connections()
        return TlsLayer(
            self._tls,
            connections.above,
            _HANDSHAKE_SECONDS,
            self._log_invalid,
            connections.service.budget.slot(),
        )

    def _log_invalid(self, reason: str) -> None:
        # Nothing was asked, so nothing is recorded.
        log.info("a connection to %s was ended: %s", self._listen, reason)

    async def start(self) -> None:
        """Open the port. Raises `OSError` if the port is taken."""
        self._listening = await asyncio.get_running_loop().create_server(
            self, hosts_to_bind(self._listen), self._listen.port, backlog=1024
        )
        # From now on no data source may lead back to this port.
        self._loop_guard.add(self._listening.sockets)

    @property
    def address(self) -> ListenAddress:
        """The listening address; for port 0, with the port that the system chose."""
        assert self._listening is not None
        if self._listen.host == EVERY:
            return self._listen
        host, port = self._listening.sockets[0].getsockname()[:2]
        return ListenAddress(host, port)

    async def close(self, seconds: float) -> None:
        """Stop accepting connections, give open requests `seconds` to finish, then end them."""
        if self._listening is not None:
            self._listening.close()
        await asyncio.gather(self._connections.close(seconds), self._probes.close(seconds))
