"""One HTTP/1.1 request and its answer, without I/O, on h11, the parser inside httpx.

`httpx.Client` takes three times the CPU of a whole check (README.md, "Cost"). No redirect, retry,
proxy, cookie or cache is here to be switched off.
"""

from __future__ import annotations

from collections.abc import Sequence

import h11

from sluice_guard.decisions import Answer

MAX_ANSWER = 64 * 1024
"""The limit for an answer, its head and interim answers included, in bytes."""


class Exchange:
    """The state of one connection."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER)
        self._response: h11.Response | None = None
        self._body = b""
        self._received = 0

    def begin(self, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        """Return the bytes to send for a POST. The headers lack only the body's length."""
        self._response, self._body, self._received = None, b"", 0
        send = self._connection.send
        request = h11.Request(
            method=b"POST",
            target=target,
            headers=[*headers, (b"content-length", b"%d" % len(body))],
        )
        head = send(request)
        content = send(h11.Data(data=body))
        send(h11.EndOfMessage())
        assert head is not None  # what h11 says to a closed connection
        assert content is not None
        return head + content

    def receive(self, data: bytes) -> Answer | None:
        """Return the answer, once `data` completes it; empty `data` is the end of the connection.
        Raises `h11.ProtocolError`, or `ConnectionResetError` at the end."""
        self._received += len(data)
        if self._received > MAX_ANSWER:
            raise h11.RemoteProtocolError(f"the answer is over {MAX_ANSWER} bytes")
        self._connection.receive_data(data)
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.Response):
                self._response = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return self._answer()
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError

    def reusable(self) -> bool:
        """Return whether another request may follow. Call it once, after an answer."""
        connection = self._connection
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return False
        connection.start_next_cycle()
        return True

    def _answer(self) -> Answer:
        if self._connection.trailing_data[0]:
            # It would be taken for the answer to the next request.
            raise h11.RemoteProtocolError("more follows the answer than was asked for")
        assert self._response is not None  # the end of a message follows its head
        return Answer(self._response.status_code, list(self._response.headers), self._body)
