"""How connections to one data source are opened: where to, past which guard, with which TLS.

aiohttp's connector opens them, with its names, addresses and limits; it asks the guard about every
answer of a resolver and about every address before a socket is made for it. Knows nothing of what
is sent on them.
"""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial

import aiohttp
from aiohttp import ClientRequest, ClientTimeout, TCPConnector, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from sidecar.http.tls_contexts import client_context
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import Unverified, UpstreamUnreachable
from sidecar.proxy.upstream.egress_policy import Guard
from sidecar.settings.model import UpstreamTls

_PLAIN = {"https": "http", "tcp": "http"}


class EarlyData(ResponseHandler):
    """What a data source says, and that it ends, before whoever is to hear it has the connection:
    it may speak as soon as it is reached."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.held = b""
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.held += data

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer
        self.ended = True
        return True


class Dialler:
    """Opens connections to the data source at `url`, at most `limits.connections` at once. With
    `raw` TLS is left to whoever speaks through them."""

    def __init__(
        self, url: str, tls: UpstreamTls, guard: Guard, limits: ProxyLimits, *, raw: bool = False
    ) -> None:
        parsed = URL(url)
        port = parsed.port
        # The connector takes the scheme for whether it has to speak TLS itself.
        self._raw = raw
        self._url = parsed.with_scheme(_PLAIN.get(parsed.scheme, "http")) if raw else parsed
        self._url = self._url.with_port(port)
        self._guard = guard
        self._server_name = tls.server_name
        self._context: ssl.SSLContext | bool = True
        if self._url.scheme == "https":
            self._context = client_context(tls)
        self._limits = limits
        self._timeout = ClientTimeout(
            total=None, connect=limits.connect_seconds, sock_connect=limits.connect_seconds
        )
        self.connector: TCPConnector | None = None

    def open(self) -> None:
        """To be called on the loop; opens no connection yet."""
        self.connector = TCPConnector(
            limit=self._limits.connections,
            keepalive_timeout=self._limits.upstream_idle_seconds,
            ttl_dns_cache=10,
            ssl=self._context,
            resolver=self._guard.resolver(),
            socket_factory=self._guard.socket,
        )
        if self._raw:
            heard: Callable[[], ResponseHandler] = partial(EarlyData, asyncio.get_running_loop())
            self.connector._factory = heard  # type: ignore[assignment]  # it is only called
        # What the connector asks of a request: where to, with which TLS. It is never sent.
        self._template = ClientRequest(
            hdrs.METH_GET,
            self._url,
            loop=asyncio.get_running_loop(),
            server_hostname=self._server_name,
        )

    async def connect(self) -> Connection:
        """A new connection. `UpstreamUnreachable` or `Unverified` where there is none to be had."""
        assert self.connector is not None
        try:
            connection = await self.connector.connect(self._template, [], self._timeout)
        except aiohttp.ClientSSLError as error:
            raise Unverified from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamUnreachable from error
        if connection.transport is None or connection.transport.is_closing():
            # It was lost again before anybody could use it.
            connection.close()
            raise UpstreamUnreachable
        return connection

    async def close(self) -> None:
        if self.connector is not None:
            await self.connector.close()
