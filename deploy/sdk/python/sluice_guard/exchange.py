"""Formats an HTTP/1.1 request and parses its response, without I/O, with h11, the parser that httpx
uses.

`httpx.Client` takes three times the CPU of a whole check (README.md, "Cost"). There are no
redirects, retries, proxies, cookies or caches here that would have to be switched off.
"""

from __future__ import annotations

from collections.abc import Sequence

import h11

from sluice_guard.decisions import Answer

MAX_ANSWER = 64 * 1024
"""The limit on a response in bytes, including its head and any interim responses."""


class Exchange:
    """The HTTP state of one connection, for its requests and responses one after another."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER)
        self._response: h11.Response | None = None
        self._body = b""
        self._received = 0

    def begin(self, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
        """Start a POST request, and return the bytes to send. `headers` must hold all headers
        except the body's length."""
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
        """Take in bytes that arrived. Returns the response once it is complete, else None. Empty
        `data` means that the connection has ended. Raises `h11.ProtocolError`, or
        `ConnectionResetError` if the connection ended too early."""
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
        """Return whether another request may follow on this connection. Call it once after each
        response."""
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
