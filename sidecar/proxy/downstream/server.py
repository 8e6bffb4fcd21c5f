"""Makes the connections of a listening port, with the settings meant. Knows no message."""

from aiohttp import StreamReader
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server

from sidecar.proxy.downstream.downstream_connection import DownstreamConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.request import Handler
from sidecar.proxy.pipeline.fast_path import FastPath
from sidecar.proxy.proxy_metrics import Flow


class DownstreamServer(Server):
    """Every connection has these limits and answers by `handler`."""

    def __init__(
        self, handler: Handler, limits: ProxyLimits, short_way: FastPath | None = None
    ) -> None:
        # With `handler_cancellation` an agent that goes away ends its request.
        super().__init__(_unused, handler_cancellation=True)
        self._handler = handler
        self._limits = limits
        self.flow = Flow()
        self._short_way = short_way

    def __call__(self) -> DownstreamConnection:
        # aiohttp's own drops every setting, limits included, when it is given one it doesn't know.
        return DownstreamConnection(self, self._handler, self._limits, self.flow, self._short_way)

    def within(self, handler: Handler) -> DownstreamConnection:
        """A connection of this server's on one that is there already, answered by `handler`."""
        return DownstreamConnection(self, handler, self._limits, self.flow)

    def prove_settings(self) -> None:
        """Raises `RuntimeError` unless a connection is as it was told to be (proxy.md 0 fact 4):
        bodies arrive as sent, limits hold, the parser is the strict one in C."""
        made = self()
        parser = made._parser
        if HttpRequestParser is HttpRequestParserPy or not isinstance(parser, HttpRequestParser):
            raise RuntimeError("aiohttp runs without its C parser")
        limits = self._limits
        kept = (made.keepalive_timeout, made.max_line_size, made.max_field_size, made.max_headers)
        told = (limits.idle_seconds, limits.line_bytes, limits.field_bytes, limits.fields)
        [(_, body)], _, _ = parser.feed_data(
            b"POST / HTTP/1.1\r\nHost: self-check\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 5\r\n\r\nplain"
        )
        # `plain` is no gzip: inflated, it would be an exception.
        inflated = type(body) is not StreamReader or body.exception() is not None
        if inflated or kept != told or not self.handler_cancellation:
            raise RuntimeError("aiohttp did not take the settings of the listener")


async def _unused(_request: BaseRequest) -> StreamResponse:
    """aiohttp wants a handler of its own kind; `DownstreamConnection` calls ours."""
    raise RuntimeError("aiohttp's own loop runs in place of ours")
