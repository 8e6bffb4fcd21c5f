"""Bodies whose rest comes after all time that a gateway waits for it, or after all room that it has
for a body. The beginning is an allowed request of its own: what is judged has to be the whole, or
nothing passes.

The doors' source is OpenSearch, whose `_msearch` means something else with each line more.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from tests.deploy.gateways.conftest import Gateways
from tests.deploy.gateways.gateway_programs import STARTED, WITHOUT_BODIES, gateway
from tests.deploy.gateways.protected import Protected
from tests.deploy.gateways.raw_requests import get, one, status
from tests.deploy.gateways.recipes import twin_door
from tests.deploy.gateways.test_http2 import GATEWAYS as WITH_HTTP2
from tests.deploy.gateways.test_http2 import is_answered

WAITED = 6.0
"""Seconds: longer than any recipe lets its gateway wait for a body."""
QUERY = b'{"query":{"match_all":{}}}\n'
ALLOWED, DENIED = (b'{"index":"%s"}\n' % name + QUERY for name in (b"public", b"secrets"))
LONG = ALLOWED.rstrip() + b" " * 200_000 + b"\n"
"""Longer than HAProxy's buffer, and valid wherever it is cut after its beginning."""
PATH, MEDIA = "/_msearch", ("content-type", "application/x-ndjson")
FIELD = ": ".join(MEDIA)


@pytest.fixture(scope="module")
def searched(world: Protected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    """The gateways with the door of the search source."""
    folder, alias = tmp_path_factory.mktemp("gateways"), "logs"

    def start(name: str) -> AbstractContextManager[int]:
        return gateway(name, folder / name, world.behind_twin(alias), twin_door(name, alias))

    with ExitStack() as kept:
        yield Gateways(start, kept)


def in_two_parts(port: int, first: bytes, rest: bytes) -> None:
    with connected(port) as wire:
        wire.sendall(first)
        time.sleep(WAITED)
        wire.sendall(rest)
        while wire.recv(65536):
            pass


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def with_a_length(port: int) -> None:
    stated = f"Content-Length: {len(ALLOWED) + len(DENIED)}"
    in_two_parts(port, get(PATH, FIELD, stated, method="POST") + ALLOWED, DENIED)


def long_and_chunked(port: int) -> None:
    pieces = (b"%x\r\n%s\r\n" % (len(each), each) for each in (LONG, DENIED, b""))
    head = get(PATH, FIELD, "Transfer-Encoding: chunked", method="POST")
    one(port, head + b"".join(pieces))


def chunked(port: int) -> None:
    first, rest = (b"%x\r\n%s\r\n" % (len(each), each) for each in (ALLOWED, DENIED))
    head = get(PATH, FIELD, "Transfer-Encoding: chunked", method="POST")
    in_two_parts(port, head + first, rest + b"0\r\n\r\n")


def in_http2(port: int) -> None:
    """Without a length: only the end of the stream says that the body is whole."""
    connection = H2Connection(H2Configuration())
    connection.initiate_connection()
    named = {"method": "POST", "scheme": "http", "authority": "kb.test", "path": PATH}
    connection.send_headers(1, [*((f":{name}", value) for name, value in named.items()), MEDIA])
    connection.send_data(1, ALLOWED)
    with connected(port) as wire:
        wire.sendall(connection.data_to_send())
        time.sleep(WAITED)
        connection.send_data(1, DENIED, end_stream=True)
        wire.sendall(connection.data_to_send())
        is_answered(wire, connection)


FRAMINGS: dict[str, tuple[Callable[[int], None], tuple[str, ...]]] = {
    "length": (with_a_length, STARTED),
    "chunked": (chunked, STARTED),
    "long": (long_and_chunked, STARTED),
    "http2": (in_http2, WITH_HTTP2),
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_data_after_the_check_reaches_no_upstream(
    world: Protected, searched: Gateways, framing: str
) -> None:
    send, names = FRAMINGS[framing]
    ports = [searched.port(name) for name in names]
    for name, port in zip(names, ports, strict=True):
        world.upstream.take()
        # It is judged by the body, where the gateway sends it.
        passes = status(one(port, get(PATH, FIELD, method="POST", body=ALLOWED))) == 200
        assert passes == (name not in WITHOUT_BODIES)
        assert len(world.upstream.take()) == passes

    def attack(port: int) -> None:
        with suppress(ConnectionError):
            send(port)

    with ThreadPoolExecutor(len(ports)) as pool:
        list(pool.map(attack, ports))
    assert [each for each in world.upstream.take() if b"secrets" in each.body] == []
