"""A server on loopback that answers as a test's script says, byte for byte."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Script = Callable[[socket.socket, threading.Event], None]
"""Answers one request on the connection; the event is set when the test ends."""

EVENT = "01890a5d-ac96-774b-bcce-b302099a8057"
ALLOW = {"decision": "ALLOW", "policy_name": "p", "reason": "fits", "event_id": EVENT}
DENY = ALLOW | {"decision": "DENY", "policy_name": "source_denied", "reason": "not listed"}


@dataclass
class Server:
    port: int
    scheme: str
    scripts: list[Script]
    """Those that are left."""
    tls: ssl.SSLContext | None
    requests: list[bytes] = field(default_factory=list)
    """Every request that arrived, whole."""
    connections: int = 0
    opened: list[socket.socket] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def answer(self, accepted: socket.socket) -> None:
        """All requests of one connection. The client may refuse its certificate, or close it."""
        with suppress(OSError), accepted:
            spoken = self.tls.wrap_socket(accepted, server_side=True) if self.tls else accepted
            with spoken:
                self.opened.append(spoken)
                while not self.ended.is_set() and (request := _request(spoken)):
                    self.requests.append(request)
                    more = len(self.scripts) > 1
                    script = self.scripts.pop(0) if more else self.scripts[0]
                    script(spoken, self.ended)


def response(
    body: object, status: str = "200 OK", *, headers: str = "Content-Type: application/json"
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\n{headers}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def says(answer: bytes) -> Script:
    return lambda connection, _ended: connection.sendall(answer)


@contextmanager
def serving(*scripts: Script, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Each request, in order, is answered by the next script; the last one answers all that
    follow."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = Server(port, "http" if tls is None else "https", list(scripts), tls)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.settimeout(20)
                server.connections += 1
                thread = threading.Thread(target=server.answer, args=(connection,), daemon=True)
                threads.append(thread)
                thread.start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server
        finally:
            server.ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(5)
            for connection in server.opened:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(5)


def _request(connection: socket.socket) -> bytes:
    """One whole request; empty at the connection's end."""
    data = b""
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            (length,) = [
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            if len(body) >= length:
                return data
        try:
            piece = connection.recv(65536)
        except OSError:
            return b""
        if not piece:
            return b""
        data += piece
