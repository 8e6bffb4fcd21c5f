"""Has the frames that arrive on a connection of HTTP/2 handled a turn of the event loop at a time.
A client may send ten thousand frames in one segment, each of which may stand for 64 KiB of fields:
other connections would wait for all of them, and the memory would hold what they stand for.

Knows no frames: the connection counts them.
"""

import asyncio
from collections.abc import Callable

from sidecar.http.http2.frame_limits import TURN
from sidecar.http.server.http2_stream import Socket


class Turns:
    """`read` gets bytes, which may be none, and how many of the frames that wait it may handle; it
    returns the number of bytes that wait for the next turn. While those are more than `most_bytes`,
    nothing is read from `socket`. `ended` is called once the client, which sends nothing more, has
    had its last turn."""

    __slots__ = ("_ended", "_loop", "_most_bytes", "_next", "_paused", "_read", "_socket", "_stops")

    def __init__(
        self,
        socket: Socket,
        loop: asyncio.AbstractEventLoop,
        most_bytes: int,
        read: Callable[[bytes, int], int],
        ended: Callable[[], bool],
    ) -> None:
        self._socket = socket
        self._loop = loop
        self._most_bytes = most_bytes
        self._read = read
        self._ended = ended
        self._next: asyncio.Handle | None = None
        self._paused = self._stops = False

    @property
    def waiting(self) -> bool:
        """True if bytes that have arrived wait for the next turn."""
        return self._next is not None

    def receive(self, data: bytes) -> None:
        """Take bytes from the client, in this turn unless others wait."""
        held = self._read(data, TURN if self._next is None else 0)
        if held and self._next is None:
            self._next = self._loop.call_soon(self._take_turn)
        self._pause(held > self._most_bytes)

    def client_ended(self) -> bool:
        """Note that the client sends nothing more. Returns whether responses are still owed, or may
        be: `ended` is called later then."""
        if self._next is None:
            return self._ended()
        self._stops = True
        return True

    def stop(self) -> None:
        """Drop what waits."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._pause(False)

    def _take_turn(self) -> None:
        self._next, transport = None, self._socket.transport
        if transport is None or transport.is_closing():
            return
        self.receive(b"")
        if self._stops and not (self.waiting or self._ended()):
            transport.close()

    def _pause(self, pause: bool) -> None:
        transport = self._socket.transport
        if pause == self._paused or transport is None or transport.is_closing():
            return
        self._paused = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()
