"""HTTP by the byte: what no client library would send, and what a sidecar answers to it."""

import asyncio
import re

import orjson

from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.sidecar import EVALUATE, RunningSidecar, ask

GOOD = orjson.dumps(ask())


def with_key() -> bytes:
    return b"X-API-Key: %b\r\n" % EVALUATE_KEY.encode()


def head(fields: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: a\r\n%b\r\n" % (EVALUATE.encode(), fields)


def request(fields: bytes, body: bytes) -> bytes:
    return head(b"Content-Length: %d\r\n" % len(body) + fields) + body


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Status, head and body of the next answer."""
    top = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", top)[1])  # type: ignore[index]
    return int(top[9:12]), top, await reader.readexactly(length)


async def connect(running: RunningSidecar) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(running.address.host, running.address.port)


async def raw(running: RunningSidecar, sent: bytes) -> tuple[int, bytes, bytes]:
    """The first answer to raw bytes."""
    reader, writer = await connect(running)
    try:
        writer.write(sent)
        async with asyncio.timeout(20):
            return await answer_of(reader)
    finally:
        writer.close()
