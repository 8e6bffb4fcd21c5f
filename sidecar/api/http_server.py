"""One of the sidecar's own ports, and the limits of its connections. Knows no message."""

import asyncio
import logging
import ssl
from typing import Protocol

from policies.ground.connection_budget import ConnectionBudget
from policies.ground.listen_address import EVERY, ListenAddress
from sidecar.http.loop_guard import LoopGuard
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.arrival import Arrival
from sidecar.http.server.connections import Connections
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.server.probes import probe_connections
from sidecar.http.server.request import HttpRequest, Serve
from sidecar.http.server.response import Response
from sidecar.http.server.service import Flow, ServerLimits, Service
from sidecar.http.tls_layer import TlsLayer
from sidecar.platform.hosts_to_bind import hosts_to_bind

log = logging.getLogger(__name__)

KEEPALIVE_SECONDS = 60.0
"""The limit on how long a connection stays idle, and on how long a head takes to arrive."""

_HANDSHAKE_SECONDS = 10.0
_MAX_LINE = 8190
_MAX_FIELDS = 128


class Answering(Protocol):
    """Answers the requests of a port."""

    @property
    def serve(self) -> Serve:
        """Answers one request."""

    def failed(self, request: HttpRequest, /) -> Response:
        """The response to a request where `serve` itself failed."""


class HttpServer:
    """A listening port whose requests `dispatcher` answers, within the `budget` of all ports, and
    beyond it probes. With `tls` it serves HTTPS alone."""

    def __init__(
        self,
        listen: ListenAddress,
        dispatcher: Answering,
        loop_guard: LoopGuard,
        heads: HeadCache,
        budget: ConnectionBudget,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        limits = ServerLimits(
            HeadLimits(_MAX_LINE, _MAX_LINE, _MAX_FIELDS),
            buffer_bytes=64 * 1024,
            idle_seconds=KEEPALIVE_SECONDS,
            lingering_seconds=2.0,
            half_close_seconds=10.0,
            write_seconds=60.0,
        )
        # A client that hangs up must not cancel its request: the record of its decision may be on
        # the way to disk.
        service = Service(dispatcher.serve, dispatcher.failed, limits, Flow(), False, heads, budget)
        self._connections = Connections(service)
        self._probes = probe_connections(service)
        self._budget = budget
        self._listen = listen
        self._loop_guard = loop_guard
        self._tls = tls
        self._listening: asyncio.Server | None = None

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
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
        """Open the port. Raises `OSError` if it is taken."""
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
        """Stop accepting, give open requests `seconds` to finish, then end them."""
        if self._listening is not None:
            self._listening.close()
        await asyncio.gather(self._connections.close(seconds), self._probes.close(seconds))
