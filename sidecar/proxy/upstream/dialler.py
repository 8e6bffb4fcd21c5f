"""Opens connections to one data source, with its TLS settings and past its guard.

aiohttp's connector resolves names, limits connections and opens them. It asks the guard about every
answer of a resolver, and about every address before a socket is made for it. Knows nothing of what
is sent.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
from aiohttp import ClientRequest, ClientTimeout, TCPConnector, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from sidecar.http.tls_contexts import client_context
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamUnreachable, UpstreamUnverified
from sidecar.proxy.upstream.egress_guard import EgressGuard
from sidecar.settings.model import UpstreamTls


class EarlyDataProtocol(ResponseHandler):
    """Holds what a data source sends, and whether it ends, until the connection has its real
    protocol: a server may speak as soon as it is reached."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.held = b""
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.held += data

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio accepts a bool
        self.ended = True
        return True


class _Connector(TCPConnector):
    """aiohttp's connector, except that it creates the connections' protocols with `factory`."""

    def __init__(self, factory: Callable[[], ResponseHandler], **settings: Any) -> None:
        super().__init__(**settings)
        # aiohttp has no setting for this. The lock file pins the version that reads this attribute.
        self._factory = factory  # type: ignore[assignment]  # it has arguments bound


class Dialler:
    """Opens connections to the data source at `url`, at most `limits.connections` at once. With
    `raw`, it speaks no TLS: the agent does, through the connection."""

    def __init__(
        self,
        url: str,
        tls: UpstreamTls,
        guard: EgressGuard,
        limits: ProxyLimits,
        *,
        raw: bool = False,
    ) -> None:
        parsed = URL(url)
        # The connector decides by the scheme whether to speak TLS itself. The port is kept: without
        # one, a URL's port follows from its scheme.
        self._url = (parsed.with_scheme("http") if raw else parsed).with_port(parsed.port)
        self._guard = guard
        self._server_name = tls.server_name
        self._context: ssl.SSLContext | bool = True
        if self._url.scheme == "https":
            self._context = client_context(tls)
        self._limits = limits
        self._timeout = ClientTimeout(
            total=None, connect=limits.connect_seconds, sock_connect=limits.connect_seconds
        )
        self._connector: TCPConnector | None = None

    def open(self, protocol: Callable[[asyncio.AbstractEventLoop], ResponseHandler]) -> None:
        """Call on the loop. Opens no connection yet. `protocol` makes the protocol of each one."""
        loop = asyncio.get_running_loop()
        self._connector = _Connector(
            partial(protocol, loop),
            limit=self._limits.connections,
            keepalive_timeout=self._limits.upstream_idle_seconds,
            # An answer from this cache isn't trusted: the guard checks each address again before a
            # socket is made for it.
            ttl_dns_cache=10,
            ssl=self._context,
            resolver=self._guard.resolver(),
            socket_factory=self._guard.socket,
        )
        # The connector takes address and TLS settings from a request. This one is never sent.
        self._template = ClientRequest(
            hdrs.METH_GET, self._url, loop=loop, server_hostname=self._server_name
        )

    async def connect(self) -> Connection:
        """A new connection. Raises `UpstreamUnreachable` or `UpstreamUnverified`."""
        assert self._connector is not None
        try:
            connection = await self._connector.connect(self._template, [], self._timeout)
        except aiohttp.ClientSSLError as error:
            raise UpstreamUnverified from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamUnreachable from error
        if connection.transport is None or connection.transport.is_closing():
            # It was lost again before it could be used.
            connection.close()
            raise UpstreamUnreachable
        return connection

    async def close(self) -> None:
        if self._connector is not None:
            await self._connector.close()
