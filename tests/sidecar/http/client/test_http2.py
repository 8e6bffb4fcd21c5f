"""Requests share the connections of HTTP/2 to a server."""

import asyncio

from tests.sidecar.http.client.served_http2 import (
    ask,
    served,
)


async def test_requests_share_a_connection() -> None:
    async with served() as (pool, source):
        got = await asyncio.gather(*[ask(pool) for _ in range(20)])
        assert [body for _, body in got] == [b"ok"] * 20
        assert len(source.connections) == pool.connections == 1
        assert (await ask(pool))[0].status == 200
        assert len(source.connections) == 1
        assert source.calls[0].head == [
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b":authority", b"kb.test"),
            (b":path", b"/a"),
        ]
        assert source.faults == []
