"""A connection that is only written to, and ends in an order that tells whether all was read.

asyncio's transports can't close only their own side of a TLS connection, so this works on the
socket. Knows no syslog.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")
_PIECE = 65_536


class EndedEarly(ConnectionError):
    """the receiver closed the connection before its end"""


class Stream:
    """One connection. Every method but `close` raises `OSError` if it breaks."""

    def __init__(self, connection: socket.socket, tls: "_Tls | None") -> None:
        self._socket = connection
        self._tls = tls
        self._loop = asyncio.get_running_loop()

    async def handshake(self) -> None:
        if self._tls is not None:
            await self._step(self._tls.engine.do_handshake)

    async def write(self, data: bytes) -> None:
        if self._tls is None:
            await self._loop.sock_sendall(self._socket, data)
            return
        for at in range(0, len(data), _PIECE):
            await self._step(partial(self._tls.engine.write, data[at : at + _PIECE]))

    async def end(self, close_notify: bool = True) -> None:
        """Close our side, and wait until the receiver has read everything and closed its own: with
        TLS by a `close_notify`, which no one between can forge, unless that is not asked for."""
        # A receiver that closed first has not read what came after, or was killed.
        self._require_open()
        if self._tls is not None:
            self._tls.close_notify()
            await self._flush()
        self._socket.shutdown(socket.SHUT_WR)
        # One that leaves something unread resets the connection, and one that refuses our
        # certificate, which it may do as late as this, sends an alert. Both raise.
        orderly = self._tls is None or not close_notify
        while raw := await self._loop.sock_recv(self._socket, _PIECE):
            if self._tls is not None:
                orderly = self._tls.take(raw) or orderly
        if not orderly:
            raise EndedEarly(
                "the receiver ended TLS without a close_notify, which RFC 5425 demands of it (see "
                "`close_notify` in the README of export_push)"
            )

    def close(self) -> None:
        self._socket.close()

    def _require_open(self) -> None:
        try:
            while True:
                raw = self._socket.recv(_PIECE)
                if not raw:
                    raise EndedEarly("the receiver closed it early")
                if self._tls is not None and self._tls.take(raw):
                    raise EndedEarly("the receiver closed it early")
        except BlockingIOError:
            pass

    async def _step(self, step: Callable[[], T]) -> T:
        """Runs a step of the TLS engine until it needs nothing from the receiver."""
        assert self._tls is not None
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                raw = await self._loop.sock_recv(self._socket, _PIECE)
                if not raw:
                    raise EndedEarly("the receiver closed it early") from None
                self._tls.incoming.write(raw)
            except ssl.SSLError:
                await self._flush()  # the alert that says why
                raise
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        assert self._tls is not None
        if data := self._tls.outgoing.read():
            await self._loop.sock_sendall(self._socket, data)


class _Tls:
    """TLS between two buffers."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)

    def take(self, raw: bytes) -> bool:
        """Takes what the receiver sent. Returns whether its `close_notify` is there; raises
        `ssl.SSLError` for an alert."""
        self.incoming.write(raw)
        try:
            while self.engine.read(_PIECE):
                pass
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLZeroReturnError:
            pass
        return True

    def close_notify(self) -> None:
        with suppress(ssl.SSLWantReadError):  # it would wait for the receiver's
            self.engine.unwrap()


async def open_stream(host: str, port: int, tls: ssl.SSLContext | None) -> Stream:
    """A connection to the first address of `host` that answers. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for family, kind, protocol, _, address in found:
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        stream = Stream(connection, None if tls is None else _Tls(tls, host))
        try:
            await loop.sock_connect(connection, address)
            await stream.handshake()
        except OSError as error:
            stream.close()
            failure = error
        except BaseException:
            stream.close()
            raise
        else:
            return stream
    raise failure
