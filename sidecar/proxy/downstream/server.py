"""Creates the connections of a listening port, with the limits of the proxy. Knows no message."""

from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from sidecar.proxy.downstream.downstream_connection import DownstreamConnection
from sidecar.proxy.downstream.fast_connection import FastDownstreamConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.request import Handler
from sidecar.proxy.pipeline.fast_path import FastPath
from sidecar.proxy.proxy_metrics import Flow


class DownstreamServer(Server):
    """A factory of connections. They share `limits`, and `handler` answers their requests."""

    def __init__(
        self, handler: Handler, limits: ProxyLimits, fast_path: FastPath | None = None
    ) -> None:
        # With `handler_cancellation`, an agent that leaves cancels its request.
        super().__init__(_unused, handler_cancellation=True)
        self._handler = handler
        self._limits = limits
        self.flow = Flow()
        self._fast_path = fast_path

    def __call__(self) -> DownstreamConnection:
        # Not aiohttp's own `__call__`: given one setting it doesn't know, it drops all of them,
        # limits included.
        if self._fast_path is None:
            return self.within(self._handler)
        return FastDownstreamConnection(
            self, self._handler, self._limits, self.flow, self._fast_path
        )

    def within(self, handler: Handler) -> DownstreamConnection:
        """An HTTP connection inside an existing one, such as a tunnel. `handler` answers its
        requests."""
        return DownstreamConnection(self, handler, self._limits, self.flow)

    def prove_settings(self) -> None:
        """Raises `RuntimeError` unless aiohttp applied every setting (proxy.md 0 fact 4): bodies
        arrive as sent, the limits hold, and the parser is the strict one in C."""
        connection = self()
        # The parser in Python accepts some of what the one in C refuses.
        if HttpRequestParser is HttpRequestParserPy:
            raise RuntimeError("aiohttp runs without its C parser")
        limits = self._limits
        connection.verify_settings(
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.line_bytes,
            max_field_size=limits.field_bytes,
            max_headers=limits.fields,
        )
        if not self.handler_cancellation:
            raise RuntimeError("aiohttp did not take the settings of the listener")


async def _unused(_request: BaseRequest) -> StreamResponse:
    """aiohttp requires a handler of its own kind; `DownstreamConnection` calls ours instead."""
    raise RuntimeError("aiohttp ran its own request loop instead of the proxy's")
