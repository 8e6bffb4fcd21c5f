"""Sends decisions to a syslog receiver over TCP or TLS (RFC 5424, RFC 5425, RFC 6587).

Syslog has no acknowledgement, and what TCP acknowledges has only reached the receiver's kernel. So
each turn uses a connection of its own, and closes it in an orderly way: we close our side, and the
receiver closes its side once it has read everything, with TLS by a `close_notify`. If the receiver
dies before that, its side of the connection is reset, or closed too early or without a
`close_notify`. Then everything that was sent over the connection is sent again over another.

One loss can't be noticed: a receiver that closes in order, and dies before it has stored
everything.

asyncio's transports can't close only their own side of a TLS connection, so this module works on
the socket.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from control_api.audit.export_push.sender import AuditEvent, TargetAway, TargetTls
from control_api.log.formats import FORMATS
from control_api.security.export_targets import ExportTarget

ENTERPRISE = 32473
"""The enterprise number in the structured data. RFC 5612 reserves this one for examples; it is used
until we have our own."""
_LOG_AUDIT, _INFORMATIONAL, _WARNING = 13, 6, 4
_ESCAPED = re.compile(r'["\\\]]')
"""The characters that a parameter must escape with a backslash (RFC 5424, section 6.3.3). Escaping
is needed because an event's id comes from a sidecar."""
_PARAMETERS = ("event_id", "seq", "hash")
_NOT_IN_HOSTNAME = re.compile(r"[^!-~]")


def framed_message(
    event: AuditEvent, tenant_id: str, hostname: str, line: Callable[[AuditEvent, str], bytes]
) -> bytes:
    """Return the syslog message in its frame, which begins with the length. `line` makes the
    message's text. No byte order mark precedes the text, because a receiver that reads the text as
    JSON would fail on one."""
    severity = _INFORMATIONAL if event["decision"] == "ALLOW" else _WARNING
    host = _NOT_IN_HOSTNAME.sub("", hostname)[:255] or "-"
    escaped = {name: _ESCAPED.sub(r"\\\g<0>", str(event[name])) for name in _PARAMETERS}
    parameters = " ".join(f'{name}="{text}"' for name, text in escaped.items())
    head = (
        f"<{_LOG_AUDIT * 8 + severity}>1 {event['timestamp']} {host} sluice - decision "
        f"[sluice@{ENTERPRISE} {parameters}] "
    )
    message = head.encode() + line(event, tenant_id)
    return b"%d %b" % (len(message), message)


T = TypeVar("T")
_PIECE = 65_536


class EndedEarly(ConnectionError):
    """the receiver closed the connection before its end"""


class Stream:
    """A connection to a syslog receiver. Every method but `close` raises `OSError` if the
    connection breaks."""

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
        """Close our side, and wait until the receiver has read everything and closed its own side.
        With TLS, the receiver must send a `close_notify`, which no party in between can forge,
        unless the argument `close_notify` is False."""
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
                if not raw or (self._tls is not None and self._tls.take(raw)):
                    raise EndedEarly("the receiver closed it early")
        except BlockingIOError:
            pass

    async def _step(self, step: Callable[[], T]) -> T:
        """Run a step of the TLS engine until it needs nothing more from the receiver."""
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
    """A TLS engine that works on two memory buffers, for incoming and outgoing bytes."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)

    def take(self, raw: bytes) -> bool:
        """Pass the receiver's bytes to the TLS engine. Return whether its `close_notify` has
        arrived. Raise `ssl.SSLError` if an alert has."""
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
    """Connect to the first address of `host` that answers. Raise `OSError` if none does."""
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


class SyslogSender:
    """Sends decisions to a syslog receiver, with a connection of its own in each turn. It is opened
    when there is something to send."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target
        self._tls = TargetTls(target) if target.tls else None
        self._stream: Stream | None = None
        line = FORMATS[target.format].encode
        self.encode = partial(framed_message, hostname=socket.gethostname(), line=line)

    async def send(self, encoded: list[bytes]) -> int:
        try:
            if self._stream is None:
                tls = None if self._tls is None else await self._tls.context()
                host, port = self._target.host, self._target.port
                assert port is not None
                self._stream = await open_stream(host, port, tls)
            await self._stream.write(b"".join(encoded))
        except OSError as error:
            raise TargetAway(_reason(error)) from error
        return 0

    async def settle(self) -> None:
        if self._stream is not None:
            try:
                await self._stream.end(self._target.close_notify)
            except OSError as error:
                raise TargetAway(_reason(error)) from error
            await self.abandon()

    async def abandon(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _reason(error: OSError) -> str:
    words = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    words = words or error.strerror or str(error) or type(error).__name__
    return f"the connection failed: {words}"
