"""Requests go on to data sources over HTTP/2."""

from pathlib import Path

from tests.sidecar.proxy.in_front_of_http2 import GET, in_front
from tests.sidecar.proxy.raw_client import ask


async def test_a_request_is_sent_on_over_http_2(tmp_path: Path) -> None:
    async with in_front(tmp_path) as (port, upstream, made):
        got = await ask(port, GET % b"/one")
        assert (got.status, got.body) == (200, b"2\r\nok\r\n0\r\n\r\n")
        [call] = upstream.calls
        assert call.head[:4] == [
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b":authority", f"127.0.0.1:{upstream.port}".encode()),
            (b":path", b"/one"),
        ]
        assert not {b"host", b"connection"} & dict(call.fields).keys()
        assert [each[0] for each in await made.decisions()] == ["ALLOW"]
        assert not upstream.faults
