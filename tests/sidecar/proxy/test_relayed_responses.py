"""What the agent gets back, byte for byte."""

import gzip
import hashlib
from pathlib import Path

import pytest

from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.support.proxy import (
    ProxySetup,
    listening,
    sidecar,
    source,
)
from tests.support.scripted_source import answer, data_source, scripted

HOST = "Host: kb.test"


async def test_an_answer_arrives_as_it_was_sent(setup: ProxySetup) -> None:
    setup.upstream.script = answer(
        "HTTP/1.1 418 I'm a Teapot",
        b"\x00\xff body",
        "date: never",
        "ETag: x",
        "Set-Cookie: a",
        "set-cookie: b",
        "X-Odd:  two  spaces ",
        "Connection: X-Hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
    )
    answered = await setup.ask(get("/a"))
    lines = answered.head.split(b"\r\n")
    event_id = (await setup.sidecar.records())[0]["eid"]
    # Nothing invented: no Content-Type, no Server.
    assert lines == [
        b"HTTP/1.1 418 I'm a Teapot",
        b"date: never",
        b"ETag: x",
        b"Set-Cookie: a",
        b"set-cookie: b",
        b"X-Odd: two  spaces",
        b"Content-Length: 7",
        b"X-Sluice-Event-Id: " + event_id.encode(),
        b"Connection: close",
    ]
    assert answered.body == b"\x00\xff body"


async def test_an_encoded_answer_stays_encoded(setup: ProxySetup) -> None:
    body = gzip.compress(b"y" * 5000)
    setup.upstream.script = answer("HTTP/1.1 200 OK", body, "Content-Encoding: gzip")
    answered = await setup.ask(get("/a", "Accept-Encoding: gzip"))
    assert answered.body == body
    assert answered.fields["content-encoding"] == "gzip"
    [seen] = setup.upstream.seen
    assert seen.values("accept-encoding") == ["gzip"]
    [lineage] = await setup.sidecar.lineage()
    assert lineage["detail"]["sha256"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary"])
async def test_a_redirect_is_the_agents_to_follow(setup: ProxySetup, status: str) -> None:
    setup.upstream.script = answer(
        f"HTTP/1.1 {status}", b"", f"Location: http://127.0.0.1:{setup.upstream.port}/secret"
    )
    answered = await setup.ask(get("/a"))
    assert str(answered.status) == status.split(" ", maxsplit=1)[0]
    assert setup.upstream.targets == ["/a"]


async def test_cookies_of_one_answer_are_sent_with_no_other_request(setup: ProxySetup) -> None:
    setup.upstream.script = answer("HTTP/1.1 200 OK", b"", "Set-Cookie: sid=1; Path=/")
    await setup.ask(get("/a"))
    await setup.ask(get("/b"))
    assert [each.values("cookie") for each in setup.upstream.seen] == [[], []]


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_chunked_answer_is_chunked_again(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(
        CHUNKED, b"3;x=y\r\nabc\r\n", None, b"2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    answered = await setup.ask(get("/a"))
    assert answered.fields["transfer-encoding"] == "chunked"
    # Chunks that wait together go on as one.
    assert answered.body in (
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"5\r\nabcde\r\n0\r\n\r\n",
    )


async def test_a_chunked_answer_at_once_is_one_chunk(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(CHUNKED + b"3\r\nabc\r\n0\r\n\r\n")
    answered = await setup.ask(get("/a"))
    assert answered.body == b"3\r\nabc\r\n0\r\n\r\n"


async def test_an_empty_chunked_answer_ends(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(CHUNKED + b"0\r\n\r\n")
    assert (await setup.ask(get("/a"))).body == b"0\r\n\r\n"


async def test_an_answer_that_ends_with_its_connection_is_chunked(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(b"HTTP/1.0 200 OK\r\n\r\nall of it", close=True)
    answered = await setup.ask(get("/a"))
    assert answered.body == b"9\r\nall of it\r\n0\r\n\r\n"


async def test_interim_answers_are_not_relayed(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    answered = await setup.ask(get("/a"))
    assert answered.raw.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("chunked", [False, True])
async def test_http_1_0_gets_no_chunks(setup: ProxySetup, chunked: bool) -> None:
    if chunked:
        setup.upstream.script = scripted(CHUNKED, b"3\r\nabc\r\n", None, b"0\r\n\r\n")
    else:
        setup.upstream.script = answer("HTTP/1.1 200 OK", b"abc")
    answered = await setup.ask(b"GET /a HTTP/1.0\r\n\r\n")
    assert answered.body == b"abc"
    assert "transfer-encoding" not in answered.fields
    assert answered.fields["connection"] == "close"
    assert setup.upstream.seen[0].line == "GET /a HTTP/1.1"


async def test_http_1_0_may_keep_its_connection(setup: ProxySetup) -> None:
    asked = b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    answered = await setup.ask(asked + asked)
    assert answered.raw.count(b"HTTP/1.1 200") == 2
    assert answered.fields["connection"] == "keep-alive"


@pytest.mark.parametrize(
    ("head", "length"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", "1234"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\n\r\n", None),
    ],
)
async def test_head_has_no_body_and_keeps_its_length(
    setup: ProxySetup, head: bytes, length: str | None
) -> None:
    setup.upstream.script = scripted(head)
    asked = f"HEAD /a HTTP/1.1\r\n{HOST}\r\n\r\n".encode()
    answered = await setup.ask(asked + get("/secret"))
    first, second = answered.raw.split(b"HTTP/1.1 ")[1:]
    assert Answered(b"HTTP/1.1 " + first).fields.get("content-length") == length
    assert first.endswith(b"\r\n\r\n")
    assert second.startswith(b"403")


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_leaves_the_connection_whole(
    setup: ProxySetup, status: int
) -> None:
    setup.upstream.script = scripted(f"HTTP/1.1 {status} X\r\nETag: y\r\n\r\n".encode())
    asked = f"GET /a HTTP/1.1\r\n{HOST}\r\n\r\n".encode()
    answered = await setup.ask(asked + asked)
    assert answered.raw.count(b"HTTP/1.1 %d X\r\n" % status) == 2
    assert answered.raw.count(b"\r\n\r\n") == 2


async def test_a_304_keeps_the_length_it_states(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n")
    answered = await setup.ask(get("/a"))
    assert answered.fields["content-length"] == "99"
    assert answered.body == b""


async def test_a_denied_head_has_no_body(setup: ProxySetup) -> None:
    answered = await setup.ask(f"HEAD /secret HTTP/1.1\r\n{HOST}\r\n\r\n".encode() + get("/secret"))
    first, second = answered.raw.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"403")
    assert first.endswith(b"\r\n\r\n")
    assert b'"decision"' in second


BROKEN = {
    "length and chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "gzip coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "gzip coding alone": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
    "NUL in a field": b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "not HTTP": b"hello\r\n\r\n",
    "a great field": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\nContent-Length: 0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_unreadable_answer_is_answered_with_502(setup: ProxySetup, name: str) -> None:
    setup.upstream.script = scripted(BROKEN[name], close=True)
    answered = await setup.ask(get("/a"))
    assert answered.status == 502
    assert answered.json["error"] == "Bad Gateway"
    assert answered.json["code"] == 502
    [lineage] = await setup.sidecar.lineage()
    assert (lineage["outcome"], lineage["detail"]["status"]) == ("failed", 502)
    assert lineage["event"]["id"] == answered.fields["x-sluice-event-id"]


async def test_a_folded_field_of_an_answer_splits_nothing(setup: ProxySetup) -> None:
    setup.upstream.script = scripted(
        b"HTTP/1.1 200 OK\r\nX: a\r\n HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    )
    answered = await setup.ask(get("/a"))
    # Either unfolded onto one line, or refused; never a line of its own.
    assert answered.status in (200, 502)
    assert all(b"\n" not in line for line in answered.head.split(b"\r\n"))
    assert sum(line.startswith(b"HTTP/1.1") for line in answered.raw.split(b"\r\n")) == 1


async def test_an_unreachable_data_source_is_answered_with_502(tmp_path: Path) -> None:
    async with data_source() as gone:
        pass
    async with sidecar(tmp_path) as made, listening(made, source(gone.port)) as port:
        answered = await ask(port, get("/a"))
        assert answered.status == 502
        assert [each[0] for each in await made.decisions()] == ["ALLOW"]
        [lineage] = await made.lineage()
        assert lineage["outcome"] == "failed"
