"""Sends requests over kept connections, each within one deadline. Retries nothing.

A connection serves one request at a time, and is closed after any failure. The sockets are those of
the standard library: httpx has a time-out for each read and write, but none for a whole request.
"""

from __future__ import annotations

import socket
import time
from collections import deque

from sluice_guard.decisions import Answer
from sluice_guard.endpoint import (
    FAILURES,
    MAX_IDLE,
    POOLS,
    Endpoint,
    Prepare,
    is_readable,
    problem,
    seconds_left,
)
from sluice_guard.exchange import Exchange

_READ_BYTES = 64 * 1024


class _Connection:
    __slots__ = ("exchange", "socket")

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.exchange = Exchange()


class Connections:
    """The kept connections of a process, shared by its threads. It needs no locks: adding to and
    taking from the ends of a deque is atomic."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: deque[_Connection] = deque()
        POOLS.add(self)

    def post(self, prepare: Prepare) -> Answer | str:
        """Send a request, and return the response, or the reason in words why there was none."""
        deadline = time.monotonic() + self._endpoint.timeout
        connection = None
        kept = False
        try:
            connection = self._take() or self._connect(deadline)
            answer = _ask(connection, prepare, deadline)
            kept = connection.exchange.reusable() and len(self._idle) < MAX_IDLE
        except FAILURES as error:
            return problem(error, self._endpoint)
        finally:
            if connection is not None and kept:
                self._idle.append(connection)
            elif connection is not None:
                connection.socket.close()
        return answer

    def close(self) -> None:
        """Close the idle connections. Connections in use are closed by their requests."""
        while (connection := self._pop()) is not None:
            connection.socket.close()

    # The child's own descriptors: the parent's connections stay open.
    after_fork = close

    def _take(self) -> _Connection | None:
        while (connection := self._pop()) is not None:
            if not is_readable(connection.socket):
                return connection
            connection.socket.close()
        return None

    def _pop(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self, deadline: float) -> _Connection:
        host, port, tls, _ = self._endpoint
        opened = _connect_tcp(host, port, deadline)
        if tls is None:
            return _Connection(opened)
        try:
            opened.settimeout(seconds_left(deadline))
            return _Connection(tls.wrap_socket(opened, server_hostname=host))
        except BaseException:
            opened.close()
            raise


def _connect_tcp(host: str, port: int, deadline: float) -> socket.socket:
    # Address by address: a name would give each of its addresses all of the time.
    *others, last = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for address in others:
        try:
            return _connect_to(address[4], deadline)
        except OSError:
            continue
    return _connect_to(last[4], deadline)


def _connect_to(address: tuple[object, ...], deadline: float) -> socket.socket:
    opened = socket.create_connection(
        (str(address[0]), int(str(address[1]))), seconds_left(deadline)
    )
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def _ask(connection: _Connection, prepare: Prepare, deadline: float) -> Answer:
    opened, exchange = connection.socket, connection.exchange
    opened.settimeout(seconds_left(deadline))
    opened.sendall(prepare(exchange))  # for all of it, this is one time-out
    while True:
        opened.settimeout(seconds_left(deadline))
        answer = exchange.receive(opened.recv(_READ_BYTES))
        if answer is not None:
            return answer
