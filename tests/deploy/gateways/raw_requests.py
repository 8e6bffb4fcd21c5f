"""A client that sends bytes as they are given, and reads what comes back to the end."""

from __future__ import annotations

import re
import socket

LAST = "/pub/last"
_LAST = f"GET {LAST} HTTP/1.1\r\nHost: kb.test\r\nConnection: close\r\n\r\n".encode()
PATIENCE = 1.0
"""Seconds after which a server that still waits for the rest of a request is told that there is
none. Few requests need it; it decides nothing but how long they take."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


def send(port: int, data: bytes) -> list[int]:
    """Send `data` on a connection, with a plain request behind it that ends it; the statuses of all
    answers, that one's included. Half a request is ended by closing our side."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        answer = b""
        try:
            connection.sendall(data + _LAST)
            answer = _read(connection, answer)
        except TimeoutError:
            answer = _close_and_read(connection, answer)
        except ConnectionError:
            pass  # closed before all was read, which is an answer too
    return [int(each) for each in _STATUS.findall(answer)]


def one(port: int, data: bytes, seconds: float = 30) -> bytes:
    """Send a request that says `Connection: close`; the whole answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        return _read(connection, b"")


def exchange(port: int, first: bytes, second: bytes) -> bytes:
    """Send `first`, wait for the beginning of its answer, and send `second` on the same connection;
    all that came back."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(first)
        answer = connection.recv(65536)
        try:
            connection.sendall(second)
        except ConnectionError:
            return answer  # closed after the first, which is an answer too
        return _close_and_read(connection, answer)  # a tunnel ends when one side does


def get(path: str, *fields: str, method: str = "GET", body: bytes = b"") -> bytes:
    """A request that closes its connection."""
    lines = [f"{method} {path} HTTP/1.1", "Host: kb.test", "Connection: close", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def status(answer: bytes) -> int:
    """The status of an answer; 0 if the connection was closed without one."""
    found = _STATUS.match(answer)
    return int(found[1]) if found else 0


def _read(connection: socket.socket, answer: bytes) -> bytes:
    try:
        while block := connection.recv(65536):
            answer += block
    except ConnectionError:
        pass
    return answer


def _close_and_read(connection: socket.socket, answer: bytes) -> bytes:
    try:
        connection.shutdown(socket.SHUT_WR)
        return _read(connection, answer)
    except OSError:
        return answer
