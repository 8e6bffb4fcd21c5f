"""HTTP/2 requests through the gateways that take them in clear text: pseudo-headers that HTTP/1.1
can't carry, and names and values that would be more than one line there."""

from __future__ import annotations

import functools
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from tests.deploy.gateways.conftest import Gateways
from tests.deploy.gateways.probes import spoken_for
from tests.deploy.gateways.protected import Protected

GATEWAYS = ("envoy-grpc", "envoy-http", "haproxy")
"""Those that understand HTTP/2 without TLS."""
Fields = list[tuple[bytes, bytes]]
HIDDEN = b"GET /admin HTTP/1.1\r\nHost: kb.test\r\n\r\n"


def get(path: bytes = b"/info/a", *more: tuple[bytes, bytes], **pseudo: bytes) -> Fields:
    named = {"method": b"GET", "scheme": b"http", "authority": b"kb.test", "path": path, **pseudo}
    return [*((f":{name}".encode(), value) for name, value in named.items()), *more]


ALLOWED = get()
HOSTILE = (
    *(
        get(path)
        for path in (
            b"/admin", b"/info/../admin", b"//admin", b"/info//a", b"/info/%2e%2e/admin",
            b"/info/a#/../../admin", b"/info/a%00", b"/info\\..\\admin", b"/info/a b", b"info/a",
            b"", b"*", b"http://kb.test/admin", b"/info/a HTTP/1.1\r\nX-Sluice-User: mallory",
            b"/info/a HTTP/1.1\r\n\r\n" + HIDDEN, b"/info/a\tb", b"/info/a\x00", b"/info/\xe9",
        )
    ),
    get(method=b"DELETE"), get(method=b"get"), get(method=b"GET /admin HTTP/1.1\r\nX:"),
    get(method=b"CONNECT"), get(authority=b"kb.test/admin?"), get(authority=b"admin"),
    get(authority=b"kb.test\r\nX-Sluice-User: mallory"), get(scheme=b"http://kb.test/admin?"),
    get(b"/info/a", (b":path", b"/admin")), get(b"/admin", (b":path", b"/info/a")),
    get(b"/info/a", (b"host", b"admin")), get(b"/info/a", (b"transfer-encoding", b"chunked")),
    get(b"/info/a", (b"connection", b"x-sluice-event-id")),
    get(b"/info/a", (b"content-length", b"9")), get(b"/info/a", (b"X-Sluice-User", b"mallory")),
    get(b"/info/a", (b"x-sluice-user", b"mallory")),
    get(b"/info/a", (b"a", b"b\r\nx-sluice-user: mallory")), get(b"/info/a", (b"a:b\r\nc", b"d")),
    get(b"/info/a", (b"x_sluice_user", b"mallory")), get(b"/info/a", (b"upgrade", b"websocket")),
    get(method=b"CONNECT", protocol=b"websocket"),  # RFC 8441: what `Upgrade` is in HTTP/1.1
)  # fmt: skip


def ask(port: int, fields: Fields) -> bool:
    """Send one request without a body. True if it is answered with 200."""
    config = H2Configuration(
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
        validate_inbound_headers=False,
    )
    connection = H2Connection(config)
    connection.initiate_connection()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as wire:
        connection.send_headers(1, fields, end_stream=True)
        wire.sendall(connection.data_to_send())
        return is_answered(wire, connection)


def is_answered(wire: socket.socket, connection: H2Connection) -> bool:
    """Read to the end of a stream. True if it is answered with 200."""
    answered = False
    while data := wire.recv(65536):
        try:
            events = connection.receive_data(data)
        except ProtocolError:
            return answered  # an answer in HTTP/1.1, as it refuses
        wire.sendall(connection.data_to_send())
        for event in events:
            if isinstance(event, ResponseReceived):
                answered = (b":status", b"200") in event.headers
            if isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                return answered
    return answered


@pytest.mark.parametrize("name", GATEWAYS)
def test_the_upstream_gets_only_judged_requests(
    name: str, world: Protected, gateways: Gateways
) -> None:
    port = gateways.port(name)
    world.upstream.take()
    assert ask(port, ALLOWED)
    (seen,) = world.upstream.take()
    assert seen.target == "/info/a"
    with ThreadPoolExecutor(16) as pool:  # a gateway may let a refused connection linger
        list(pool.map(functools.partial(ask, port), HOSTILE))
    seen_all = world.upstream.take()
    assert world.unjudged(seen_all) == []
    assert [each for each in seen_all if spoken_for(world.event(each))] == []
    assert [each for each in seen_all if each.all("x-sluice-user") or each.protocol] == []
