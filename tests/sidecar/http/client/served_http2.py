"""A pool of connections of HTTP/2, and a server at the other end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sidecar.http.client.dialler import ClientLimits, Destination
from sidecar.http.client.egress_guard import EgressGuard, LoopGuard
from sidecar.http.client.pool import Carrier, Pool
from sidecar.http.client.request import Origin, UpstreamRequest
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.messages.response_parser import ResponseMessage
from tests.support.http2_source import Http2Source, Script, answers, http2_source
from tests.support.waiting import until_async

LIMITS = ClientLimits(HeadLimits(65536, 65536, 128), 65536, 3, 5.0, 15.0)
ORIGIN = Origin.of("kb.test", "", "http")
GET = UpstreamRequest("GET", "/a", b"")
CANCEL, REFUSED, CALM = 8, 7, 11


def pool_of(port: int, limits: ClientLimits = LIMITS) -> Pool:
    guard = EgressGuard("127.0.0.1", (), LoopGuard(), lambda _: None, lambda: 0.0)
    return Pool(Destination("127.0.0.1", port), guard, limits, "2")


@asynccontextmanager
async def served(
    script: Script = answers, limits: ClientLimits = LIMITS, **more: int
) -> AsyncIterator[tuple[Pool, Http2Source]]:
    async with http2_source(script, **more) as source:  # type: ignore[arg-type]
        pool = pool_of(source.port, limits)
        try:
            yield pool, source
        except BaseException:
            pool.close()
            raise
        else:
            pool.close()
            await until_async("the connections have ended", lambda: not pool.connections)


async def begun(pool: Pool, request: UpstreamRequest = GET) -> Carrier:
    carrier = pool.take() or await pool.connect()
    carrier.begin(request, ORIGIN)
    return carrier


async def ask(pool: Pool, request: UpstreamRequest = GET) -> tuple[ResponseMessage, bytes]:
    """The response to a request, and all of its body."""
    carrier = await begun(pool, request)
    try:
        message = await carrier.response()
        body = b""
        while part := await message.body.next(5):
            body += part
    except BaseException:
        pool.discard(carrier)
        raise
    pool.release(carrier)
    return message, body
