"""Bodies of requests to Chroma: what two readers could understand differently is refused, and what
was judged is what arrives."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.chroma.front import (
    Front,
)
from tests.sidecar.protocols.minimal import denied
from tests.support.proxy import listening, source
from tests.support.scripted_source import data_source

BODIES = {
    "a key twice": b'{"n_results":1,"n_results":9,"query_embeddings":[[1.0,2.0]]}',
    "a key twice, escaped": b'{"n_results":1,"n\\u005fresults":9,"query_embeddings":[[1,2]]}',
    "a key twice inside": b'{"where":{"page":1,"page":2}}',
    "a key twice deep inside": b'{"where":{"$and":[{"page":{"$gt":1,"$gt":0}},{"a":1}]}}',
    "a key twice in a list": b'{"x":[1,2,{"a":1,"a":1}]}',
    "not JSON": b"{",
    "nothing": b"",
    "an array": b"[]",
    "a string": b'"x"',
    "a byte order mark": b'\xef\xbb\xbf{"ids":[]}',
    "utf-16": '{"ids":[]}'.encode("utf-16"),
    "something behind": b'{"ids":[]} x',
    "two objects": b'{"ids":[]}{"ids":[]}',
    "NaN": b'{"limit":NaN}',
    "a lone surrogate": b'{"ids":["\\ud800"]}',
    "not UTF-8": b'{"ids":["\xff"]}',
    "too deep": b'{"where":' + b"[" * 3000 + b"]" * 3000 + b"}",
}


@pytest.mark.parametrize("name", BODIES)
async def test_an_ambiguous_body_is_refused(front: Front, name: str) -> None:
    answered = await front.ask("POST", front.one("open_docs", "/get"), raw=BODIES[name])
    denied(answered, "unreadable_request", 400)
    assert front.relay.lines == []
    assert await front.sidecar.decisions() == [("DENY", "unreadable_request", "chroma://kb")]


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/json; charset=utf-16", "application/vnd.api+json", "application/jsonx"],
)  # fmt: skip
async def test_a_body_of_another_type_is_refused(front: Front, kind: str) -> None:
    answered = await front.ask("POST", front.one("open_docs", "/get"), {}, f"Content-Type: {kind}")
    denied(answered, "unreadable_request", 400)
    assert front.relay.lines == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x"])
async def test_an_encoded_body_is_refused(front: Front, coding: str) -> None:
    answered = await front.ask(
        "POST", front.one("open_docs", "/get"), {}, f"Content-Encoding: {coding}"
    )
    denied(answered, "unreadable_request", 400)
    assert front.relay.lines == []


async def test_a_body_with_the_identity_coding_is_read(front: Front) -> None:
    answered = await front.ask(
        "POST", front.one("open_docs", "/get"), {}, "Content-Encoding: identity"
    )
    assert answered.status == 200


async def test_a_body_past_the_limit_is_denied_not_passed(front: Front) -> None:
    large = b'{"ids":["' + b"x" * (4 * 1024 * 1024) + b'"]}'
    denied(
        await front.ask("POST", front.one("open_docs", "/get"), raw=large),
        "unreadable_request", 400,
    )  # fmt: skip
    assert front.relay.lines == []


async def test_a_chunked_body_past_the_limit_is_denied_not_passed(front: Front) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = f"POST {front.one('open_docs', '/get')} HTTP/1.1\r\nHost: kb\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    block = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    try:
        for _ in range(80):
            writer.write(block)
            await writer.drain()
    except ConnectionError:
        pass
    raw = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert raw.startswith(b"HTTP/1.1 400 ")
    assert front.relay.lines == []


async def test_the_bytes_that_were_judged_are_the_bytes_that_arrive(
    front: Front, tmp_path: Path
) -> None:
    described = front.direct("GET", f"{front.names}/open_docs")[1]
    async with data_source() as upstream:

        async def script(_seen: Any, writer: asyncio.StreamWriter) -> None:
            body = json.dumps(described).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        upstream.script = script
        async with listening(front.sidecar, source(upstream.port, "chroma")) as port:
            front.port = port
            odd = b' {\n"limit" :1.0 , "where":{"a:b":"\\u00e9:"}, "x":1e2}\r\n '
            await front.ask("POST", front.one("open_docs", "/get"), raw=odd)
            assert upstream.seen[-1].body == odd
            assert upstream.seen[-1].values("content-length") == [str(len(odd))]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                f"POST {front.one('open_docs', '/get')} HTTP/1.1\r\nHost: kb\r\n"
                "Transfer-Encoding: chunked\r\n\r\n3\r\n{ }\r\n0\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
            assert upstream.seen[-1].body == b"{ }"
            assert upstream.seen[-1].values("transfer-encoding") == ["chunked"]
