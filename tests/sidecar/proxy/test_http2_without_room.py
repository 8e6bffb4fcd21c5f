"""A data source of HTTP/2 that takes no request gets no connection after connection."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.proxy.raw_client import ask
from tests.support.proxy import listening, sidecar, source

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_http2_upstream.py::test_a_request_is_sent_on_over_http_2"
)
GET = b"GET / HTTP/1.1\r\nHost: kb.test\r\nConnection: close\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
NO_STREAMS = b"\0\0\6\4\0\0\0\0\0\0\3\0\0\0\0"
GOAWAY = b"\0\0\x08\7\0\0\0\0\0" + b"\0" * 8
RESET = b"\0\0\4\3\0\0\0\0\1\0\0\0\7"


@pytest.mark.parametrize(
    "greeting", [NO_STREAMS, SETTINGS + GOAWAY, SETTINGS + RESET], ids=["zero", "goaway", "reset"]
)
async def test_a_source_that_takes_no_request_is_not_asked_again_and_again(
    tmp_path: Path, greeting: bytes
) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(greeting)
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with sidecar(tmp_path) as made, listening(made, source(port, http="2")) as listener:
        got = await asyncio.gather(*(ask(listener, GET) for _ in range(5)))
        assert {each.status for each in got} == {502}
        # At most one for each request, and one for each that was sent again.
        assert connections <= 10
        assert [each[0] for each in await made.decisions()] == ["ALLOW"] * 5
    server.close()
