"""An upstream that keeps each request as it came, byte for byte, and answers 200 but for one path,
and 101 to a request for another protocol.

It reads requests one after another, as a plain server does, so that what a gateway lets through in
the body of another request, or in the tunnel after a 101, is seen as a request. Knows no gateway.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

FAILING = "/pub/failing"
"""A path whose requests are answered with 503."""
FAILURE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
RESOLVE = "/_resolve/index/"
"""A path of OpenSearch: which indices a name stands for. Here a name is an index. The sidecar asks
for itself, so that such a request isn't kept."""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nupstream"


SWITCHED = (
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
    # What RFC 6455 answers to `probes.UPGRADES`, since Caddy and Envoy look at it.
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


@dataclass(frozen=True)
class Seen:
    """One request."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    """Names in lower case."""
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.fields if each == name]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def protocol(self) -> str:
        """The protocol to which a request asks to switch; empty if it doesn't ask (RFC 9110,
        section 7.8)."""
        options = ",".join(self.all("connection")).lower().split(",")
        asked = ",".join(self.all("upgrade"))
        return asked if "upgrade" in [each.strip() for each in options] else ""


class Upstream(socketserver.ThreadingTCPServer):
    """The server. `seen` grows with each request."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.seen: list[Seen] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def take(self) -> list[Seen]:
        """What arrived since the last call."""
        taken, self.seen = self.seen, []
        return taken


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Upstream)
        try:
            while (request := self._read()) is not None:
                if request.path.startswith(RESOLVE):
                    self.wfile.write(_resolution(request.path.removeprefix(RESOLVE)))
                    continue
                self.server.seen.append(request)
                self.wfile.write(self._answer(request))
        except OSError:
            return  # the gateway closed it

    def _answer(self, request: Seen) -> bytes:
        if request.protocol:
            return SWITCHED.format(protocol=request.protocol).encode("latin-1")
        return FAILURE if request.path == FAILING else ANSWER

    def _read(self) -> Seen | None:
        first = self.rfile.readline().decode("latin-1").rstrip("\r\n")
        if not first:
            return None
        fields = []
        while line := self.rfile.readline().decode("latin-1").rstrip("\r\n"):
            name, _, value = line.partition(":")
            fields.append((name.strip().lower(), value.strip()))
        method, _, rest = first.partition(" ")
        return Seen(method, rest.rpartition(" ")[0], tuple(fields), self._body(dict(fields)))

    def _body(self, fields: dict[str, str]) -> bytes:
        if "chunked" in fields.get("transfer-encoding", ""):
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(fields.get("content-length", "0")))


def _resolution(name: str) -> bytes:
    found = {"indices": [{"name": name, "attributes": ["open"]}], "aliases": [], "data_streams": []}
    body = json.dumps(found).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@contextmanager
def running_upstream() -> Iterator[Upstream]:
    """An upstream on a port that the system chooses."""
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
