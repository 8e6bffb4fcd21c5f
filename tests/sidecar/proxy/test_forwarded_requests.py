"""What the data source receives, byte for byte."""

import asyncio
import gzip
import hashlib
from pathlib import Path

import pytest

from tests.sidecar.proxy.raw_client import ask, get, one
from tests.support.proxy import (
    ProxySetup,
    listening,
    sidecar,
    source,
)
from tests.support.scripted_source import data_source

HOST = "Host: kb.test"


async def test_a_request_arrives_as_it_was_sent(setup: ProxySetup) -> None:
    await setup.ask(get("/a/b?x=%2F&y", "aCCept: x/y", "Cookie: a=1", "cookie: b=2", "X: ä "))
    [seen] = setup.upstream.seen
    assert seen.line == "GET /a/b?x=%2F&y HTTP/1.1"
    # Nothing invented: no Accept, no Accept-Encoding, no User-Agent, no length, no coding.
    assert seen.head.split(b"\r\n")[1:-2] == [
        b"Host: 127.0.0.1:%d" % setup.upstream.port,
        b"aCCept: x/y",
        b"Cookie: a=1",
        b"cookie: b=2",
        "X: ä".encode(),
    ]


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("/a?", "/a?"),
        ("/a??", "/a??"),
        ("/a?x=%zz&%2F=/../", "/a?x=%zz&%2F=/../"),
        ("/%61?%61", "/a?%61"),
        ("/a;x", "/a%3Bx"),
    ],
)
async def test_the_target_is_the_canonical_one(setup: ProxySetup, sent: str, received: str) -> None:
    await setup.ask(get(sent))
    assert setup.upstream.targets == [received]


async def test_a_path_prefix_of_the_upstream_precedes_the_canonical_path(
    tmp_path: Path,
) -> None:
    async with data_source() as upstream, sidecar(tmp_path) as made:
        configured = source(upstream.port, upstream=f"http://127.0.0.1:{upstream.port}/base/v1/")
        async with listening(made, configured) as port:
            await ask(port, get("/%61?q"))
            await ask(port, get("/../x"))
        assert upstream.targets == ["/base/v1/a?q"]
        assert (await made.decisions())[0][2] == "rest://kb/a"


METHODS = ["DELETE", "PATCH", "PUT", "OPTIONS", "TRACE", "PROPFIND", "REPORT"]


@pytest.mark.parametrize("method", METHODS)
async def test_any_method_arrives(setup: ProxySetup, method: str) -> None:
    answered = await setup.ask(f"{method} /a HTTP/1.1\r\n{HOST}\r\n\r\n".encode())
    assert answered.status == 200
    assert [each.line for each in setup.upstream.seen] == [f"{method} /a HTTP/1.1"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_body_arrives_with_its_length(setup: ProxySetup, method: str) -> None:
    body = b'{"a": 1}\x00\xff'
    data = f"{method} /a HTTP/1.1\r\n{HOST}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    await setup.ask(data + body)
    [seen] = setup.upstream.seen
    assert seen.body == body
    assert seen.values("content-length") == [str(len(body))]
    assert seen.values("transfer-encoding") == []


async def test_a_length_of_zero_is_kept(setup: ProxySetup) -> None:
    await setup.ask(f"POST /a HTTP/1.1\r\n{HOST}\r\nContent-Length: 0\r\n\r\n".encode())
    assert setup.upstream.seen[0].values("content-length") == ["0"]


async def test_a_chunked_body_arrives_chunked_and_without_its_trailers(setup: ProxySetup) -> None:
    await setup.ask(
        f"POST /a HTTP/1.1\r\n{HOST}\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n".encode()
        + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\nHost: evil\r\n\r\n"
    )
    [seen] = setup.upstream.seen
    assert seen.body == b"abcde"
    assert seen.values("transfer-encoding") == ["chunked"]
    assert seen.values("content-length") == seen.values("trailer") == []


async def test_an_empty_chunked_body_arrives_as_one(setup: ProxySetup) -> None:
    await setup.ask(
        f"POST /a HTTP/1.1\r\n{HOST}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
    )
    [seen] = setup.upstream.seen
    assert (seen.body, seen.whole) == (b"", True)


async def test_an_encoded_body_stays_encoded(setup: ProxySetup) -> None:
    body = gzip.compress(b"x" * 10000)
    head = f"POST /a HTTP/1.1\r\n{HOST}\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}"
    await setup.ask(head.encode() + b"\r\n\r\n" + body)
    [seen] = setup.upstream.seen
    assert seen.body == body
    assert seen.values("content-encoding") == ["gzip"]


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_segments.py::TestEveryWay::test_a_large_body_arrives"
)
async def test_a_large_upload_passes_through(setup: ProxySetup) -> None:
    body = bytes(range(256)) * 40000
    head = f"PUT /a HTTP/1.1\r\n{HOST}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answered = await one(setup.port, head.encode() + body)
    assert answered.status == 200
    assert hashlib.sha256(setup.upstream.seen[0].body).digest() == hashlib.sha256(body).digest()


async def test_the_agent_is_asked_for_its_body_only_once_the_request_is_allowed(
    setup: ProxySetup,
) -> None:
    async def expecting(target: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", setup.port)
        head = f"POST {target} HTTP/1.1\r\n{HOST}\r\nExpect: 100-continue\r\nContent-Length: 3"
        writer.write(head.encode() + b"\r\n\r\n")
        first = await reader.readuntil(b"\r\n\r\n")
        if first.startswith(b"HTTP/1.1 100"):
            writer.write(b"abc")
            first += await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return first

    assert (await expecting("/a")).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert (await expecting("/secret")).startswith(b"HTTP/1.1 403 ")
    [seen] = setup.upstream.seen
    assert seen.body == b"abc"
    assert seen.values("expect") == []
