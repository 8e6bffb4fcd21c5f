"""The connections to one data source: writes a request as given, reads an answer as sent.

aiohttp's connector opens, verifies and pools the connections, its parser reads the answers. The
request is written here rather than by `ClientSession`, which would rewrite the target, merge
fields that differ only in case, invent fields, follow redirects, keep cookies, read proxy settings
from the environment, inflate bodies and send a request a second time on its own (proxy.md 0 facts 1
to 3, A1). Nothing is retried: the data source sees a request once, as the audit trail does.

Knows no policy and no protocol above HTTP.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp import ClientRequest, ClientTimeout, StreamReader, TCPConnector, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from policies.ground.errors import UpstreamFailed
from sidecar.proxy.exchange import Exchange
from sidecar.proxy.headers import answer_head
from sidecar.proxy.limits import Limits
from sidecar.proxy.pump import Pump

_TIMER = TimerNoop()
_BROKEN = (aiohttp.ClientError, HttpProcessingError, OSError, asyncio.TimeoutError)


class Ask(NamedTuple):
    """A request to the data source.

    `length` is the value of `Content-Length`, None where there is none; `chunked` whether the body
    is sent in chunks. `body` is a body that is at hand, `stream` the reader of one that is not.
    """

    method: str
    target: str
    fields: list[tuple[bytes, bytes]]
    length: bytes | None = None
    chunked: bool = False
    body: bytes = b""
    stream: StreamReader | None = None


class _Answering(ResponseHandler):
    """The reading side of a connection to the data source."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        # A body's reader calls this whenever it is empty; unless reading was paused there is
        # nothing to resume, and aiohttp would run the parser over nothing.
        if self._reading_paused:
            super().resume_reading(resume_parser)


class Upstream:
    """The data source at `url`, with an optional path prefix, as one listener sees it."""

    def __init__(self, url: str, limits: Limits) -> None:
        self._url = URL(url)
        self._limits = limits
        self._prefix = self._url.raw_path.rstrip("/").encode()
        self._host = (self._url.host_port_subcomponent or "").encode()
        self._timeout = ClientTimeout(
            total=None, connect=limits.connect_seconds, sock_connect=limits.connect_seconds
        )
        self._connector: TCPConnector | None = None
        self._template: ClientRequest | None = None

    async def open(self) -> None:
        """Opens no connection yet: a data source that is away does not keep the sidecar from
        starting."""
        self._connector = TCPConnector(
            limit=self._limits.connections,
            keepalive_timeout=self._limits.upstream_idle_seconds,
            ttl_dns_cache=10,
        )
        made: Any = partial(_Answering, asyncio.get_running_loop())
        self._connector._factory = made
        # What the connector asks of a request: where to, with which TLS. It is never sent.
        self._template = ClientRequest(hdrs.METH_GET, self._url, loop=asyncio.get_running_loop())

    async def close(self) -> None:
        if self._connector is not None:
            await self._connector.close()

    async def send(self, ask: Ask) -> Exchange:
        """Sends `ask`; the answer once its head is there. `UpstreamFailed` where there is none.

        The caller must `finish` the exchange, whatever becomes of it.
        """
        connection = await self._connect()
        protocol = connection.protocol
        assert protocol is not None
        pump = None
        try:
            protocol.set_response_params(
                timer=_TIMER,
                skip_payload=ask.method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=self._limits.buffer_bytes,
                max_line_size=self._limits.answer_field_bytes,
                max_field_size=self._limits.answer_field_bytes,
                max_headers=self._limits.fields,
            )
            _write(protocol, self._head(ask) + _body(ask))
            if ask.stream is not None:
                pump = Pump(ask.stream, protocol, chunked=ask.chunked)
            return await _answer(connection, protocol, pump, ask.method)
        except BaseException as error:
            connection.close()
            if pump is not None:
                await pump.stop()
            if isinstance(error, _BROKEN):
                raise UpstreamFailed("the data source gave no answer that can be read") from error
            raise

    async def _connect(self) -> Connection:
        assert self._connector is not None
        assert self._template is not None
        while True:
            try:
                connection = await self._connector.connect(self._template, [], self._timeout)
            except _BROKEN as error:
                raise UpstreamFailed("the data source can't be reached") from error
            protocol = connection.protocol
            # The pool only asks whether a connection is open. One on which something arrived that
            # nobody had asked for would give this request another one's answer.
            if protocol is not None and not protocol.should_close:
                return connection
            connection.close()

    def _head(self, ask: Ask) -> bytes:
        lines = [
            b"%b %b%b HTTP/1.1\r\nHost: %b"
            % (ask.method.encode(), self._prefix, ask.target.encode(), self._host)
        ]
        lines += [b"%b: %b" % field for field in ask.fields]
        if ask.length is not None:
            lines.append(b"Content-Length: " + ask.length)
        elif ask.chunked:
            lines.append(b"Transfer-Encoding: chunked")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != len(lines):
            raise AssertionError("a line break inside a field of a request")
        return head + b"\r\n\r\n"


def _body(ask: Ask) -> bytes:
    if not ask.chunked or ask.stream is not None:
        return ask.body
    body = ask.body
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"


async def _answer(
    connection: Connection, protocol: ResponseHandler, pump: Pump | None, method: str
) -> Exchange:
    while True:
        message, stream = await protocol.read()
        # Interim answers are not relayed (proxy.md A1); `101` would be, had anyone asked for it.
        if not 100 <= message.code < 200 or message.code == 101:
            break
    head = answer_head(message.raw_headers)
    empty = method == "HEAD" or message.code in (204, 304)
    length = _framed(message.code, head.lengths, head.codings)
    return Exchange(
        connection, pump, message.code, message.reason or "", head.forward, length, empty, stream
    )


def _framed(status: int, lengths: Sequence[bytes], codings: Sequence[bytes]) -> bytes | None:
    """The answer's length, None where the end of the body tells. Raises what is `_BROKEN`."""
    if status == 101:
        raise aiohttp.ClientPayloadError("an upgrade that nobody asked for")
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise aiohttp.ClientPayloadError("the answer's transfer coding is not `chunked`")
    if len(lengths) > 1:
        raise aiohttp.ClientPayloadError("the answer states its length twice")
    return lengths[0] if lengths else None


def _write(protocol: ResponseHandler, data: bytes) -> None:
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise aiohttp.ClientConnectionResetError("the connection was closed")
    transport.write(data)
