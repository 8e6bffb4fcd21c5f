"""Ends a connection whose client takes too long to send a head, or to accept the bytes written; and
one whose client may be gone while its request is answered. Reads and writes no bytes."""

import asyncio
import logging
import socket

from sidecar.http.server.http1 import Http1
from sidecar.http.server.request import CONTINUE, ClientConnection, ServerLimits

log = logging.getLogger(__name__)

_ESTABLISHED, _CLOSED = 1, 7
"""The kernel's numbers for two states of a TCP connection: neither side has ended it, and it was
reset."""


class TimeLimits:
    """The timers of one connection from a client."""

    __slots__ = (
        "_asked", "_connection", "_grace", "_http1", "_idle_since", "_idle_timer", "_limits",
        "_lingering", "_loop", "_watching", "_writable",
    )  # fmt: skip

    def __init__(
        self,
        connection: ClientConnection,
        http1: Http1,
        limits: ServerLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._http1 = http1
        self._limits = limits
        self._loop = loop
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._asked = False
        """True if the sidecar has sent a client that half-closed a 100 response, to find out
        whether it is still there."""
        self._writable: asyncio.Future[None] | None = None

    def start(self) -> None:
        self._idle_since = self._loop.time()
        self._check_idle()

    def stop(self) -> None:
        """Cancel all timers except the one for writing, since another protocol takes over or the
        connection is lost."""
        for timer in (self._idle_timer, self._grace, self._lingering, self._watching):
            if timer is not None:
                timer.cancel()
        self._grace = self._watching = None

    def request_ended(self) -> None:
        """Note that a request has ended: the client has all of `idle_seconds` for the next one."""
        self._idle_since = self._loop.time()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _check_idle(self) -> None:
        # One timer serves all requests: if it fires too early, it is set again.
        connection, seconds = self._connection, self._limits.idle_seconds
        left = self._idle_since + seconds - self._loop.time()
        transport = connection.transport
        if self._http1.current is not None:
            left = seconds
            if transport is not None and _left_unnoticed(transport, self._http1):
                transport.abort()
                return
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._check_idle)
        elif transport is not None:
            if connection.congested or transport.is_closing():
                # A close would wait until the client has taken the written bytes, which it may
                # never do.
                transport.abort()
            else:
                transport.close()

    def linger(self) -> None:
        """Close the connection, whose sending side has ended, after `lingering_seconds`, unless the
        client closes it earlier."""
        self._lingering = self._loop.call_later(self._limits.lingering_seconds, self._close)

    def _close(self) -> None:
        transport = self._connection.transport
        if transport is not None:
            transport.close()

    # ---------------------------------------------------------------- a client that half-closed

    def awaits_response(self) -> bool:
        """Return whether a client that closed its sending side may still wait for a response. A
        client that is gone looks the same until something is written to it, so the wait is limited
        to `half_close_seconds`. If that is 0, the client counts as gone unless its response has
        begun, and its request is broken off at once."""
        http1 = self._http1
        request = http1.current
        if not self._limits.half_close_seconds:
            if request is None:
                return False
            if not request.response_started:
                self._abandon()
                return False
        if request is None:
            return http1.owes_response()  # it takes nothing: `_check_idle` limits that
        if http1.unread and not request.body.settled:
            return True  # it may be what ends the body
        owed = http1.owes_response()
        if owed and not request.response_started and self._grace is None:
            self._grace = self._loop.call_later(self._limits.half_close_seconds, self._abandon)
        return owed

    def _abandon(self) -> None:
        request, transport = self._http1.current, self._connection.transport
        # Once it has begun, a failing write shows that the client is gone.
        if transport is not None and (request is None or not request.response_started):
            transport.abort()

    # ------------------------------------------------------------ a client that may have left

    def watch(self) -> None:
        """Watch the client of the current request until the response begins or the request ends. If
        the client leaves, the connection is ended soon."""
        if self._watching is None:
            self._watching = self._loop.call_later(self._limits.watch_seconds, self._look)

    def watch_unread(self) -> None:
        """Watch for a client that leaves while nothing is read from it: without reading, the event
        loop doesn't notice. Needed only if a client that closes its sending side counts as gone."""
        if not self._limits.half_close_seconds:
            self.watch()

    def _look(self) -> None:
        request, transport = self._http1.current, self._connection.transport
        self._watching = None
        if request is None or request.response_started or transport is None:
            return
        ended = _state(transport) not in (None, _ESTABLISHED)
        ended = ended and not self._limits.half_close_seconds
        if ended or _left_unnoticed(transport, self._http1) or _state(transport) == _CLOSED:
            transport.abort()
            return
        if self._http1.half_closed and not self._asked:
            if request.http10:
                transport.abort()  # it knows no interim responses
                return
            # A client that is gone looks like one that waits, until something is written to it: its
            # system then resets the connection. A client that waits ignores this interim response,
            # expected or not (RFC 9110 section 15.2.1).
            self._asked = True
            if not transport.is_closing():
                self._connection.write(CONTINUE)
        self.watch()

    # -------------------------------------------------------- a client that takes nothing

    async def until_writable(self) -> None:
        """Wait until the client has accepted enough of the bytes written. Raises
        `ConnectionResetError` if it is gone, or accepts nothing for `write_seconds`: its request
        would hold a connection to the data source forever."""
        self._writable = writable = self._loop.create_future()
        timer = self._loop.call_later(self._limits.write_seconds, self._cut_off)
        try:
            await writable
        finally:
            timer.cancel()
            self._writable = None

    def writable(self, error: Exception | None = None) -> None:
        """End the wait of `until_writable`; it raises `error` if that is given."""
        waiter = self._writable
        if waiter is not None and not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _cut_off(self) -> None:
        log.info("a client took nothing of its response for %g s", self._limits.write_seconds)
        if self._connection.transport is not None:
            self._connection.transport.abort()


def _left_unnoticed(transport: asyncio.Transport, http1: Http1) -> bool:
    """Return whether the client has left while reading was paused because it had sent much more
    than the current request. Without reading, the event loop doesn't notice that it left."""
    request = http1.current
    if request is None or request.response_started or not request.body.settled:
        return False
    if http1.half_closed or transport.is_reading():
        return False
    return _state(transport) not in (None, _ESTABLISHED)


def _state(transport: asyncio.Transport) -> int | None:
    """Return the kernel's state of the TCP connection, the first byte of `tcp_info`; None without a
    socket."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return None
    state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state
