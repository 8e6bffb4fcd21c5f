"""What the data source receives and what the agent gets back, byte for byte."""

import asyncio
import gzip
import hashlib
from pathlib import Path

import pytest

from tests import waiting
from tests.sidecar.proxy.proxy_setup import (
    ProxySetup,
    listening,
    policy,
    proxy_setup,
    sidecar,
    source,
)
from tests.sidecar.proxy.raw_client import Answered, ask, get, one
from tests.sidecar.proxy.scripted_source import Script, Seen, answer, data_source

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


async def test_a_path_prefix_of_the_upstream_stands_before_the_canonical_path(
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


async def test_a_large_upload_passes_through(setup: ProxySetup) -> None:
    body = bytes(range(256)) * 40000
    head = f"PUT /a HTTP/1.1\r\n{HOST}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answered = await one(setup.port, head.encode() + body)
    assert answered.status == 200
    assert hashlib.sha256(setup.upstream.seen[0].body).digest() == hashlib.sha256(body).digest()


async def test_continue_is_said_only_once_the_request_is_allowed(setup: ProxySetup) -> None:
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


async def test_an_answer_comes_back_as_it_was_sent(setup: ProxySetup) -> None:
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


async def test_cookies_of_one_answer_go_into_no_other_request(setup: ProxySetup) -> None:
    setup.upstream.script = answer("HTTP/1.1 200 OK", b"", "Set-Cookie: sid=1; Path=/")
    await setup.ask(get("/a"))
    await setup.ask(get("/b"))
    assert [each.values("cookie") for each in setup.upstream.seen] == [[], []]


def scripted(*parts: bytes | None, close: bool = False) -> Script:
    """Writes each part; at None it waits until what it wrote has arrived."""

    async def script(_seen: Seen, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            if part is None:
                await waiting.turns()
            else:
                writer.write(part)
                await writer.drain()
        if close:
            writer.close()

    return script


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
async def test_an_answer_that_can_not_be_read_is_a_502(setup: ProxySetup, name: str) -> None:
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


async def test_a_data_source_that_is_away_is_a_502(tmp_path: Path) -> None:
    async with data_source() as gone:
        pass
    async with sidecar(tmp_path) as made, listening(made, source(gone.port)) as port:
        answered = await ask(port, get("/a"))
        assert answered.status == 502
        assert [each[0] for each in await made.decisions()] == ["ALLOW"]
        [lineage] = await made.lineage()
        assert lineage["outcome"] == "failed"


async def test_a_connection_that_the_data_source_closed_is_not_used_twice(
    setup: ProxySetup,
) -> None:
    setup.upstream.script = scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", close=True)
    for _ in range(3):
        assert (await setup.ask(get("/a"))).status == 200
        await waiting.turns()
    assert len(setup.upstream.seen) == 3


async def test_connections_are_used_again(setup: ProxySetup) -> None:
    for _ in range(5):
        assert (await setup.ask(get("/a"))).status == 200
    assert setup.upstream.connections == 1


async def test_a_write_is_sent_once_however_it_fails(setup: ProxySetup) -> None:
    for method in ("PUT", "DELETE", "POST"):
        setup.upstream.script = answer()
        await setup.ask(get("/warm"))
        setup.upstream.script = scripted(close=True)
        asked = f"{method} /once HTTP/1.1\r\n{HOST}\r\nConnection: close\r\n\r\n".encode()
        assert (await setup.ask(asked)).status == 502
    assert setup.upstream.targets.count("/once") == 3


async def test_an_unrequested_answer_is_given_to_no_request(setup: ProxySetup) -> None:
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    setup.upstream.script = scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", None, extra)
    assert (await setup.ask(get("/a"))).body == b"ok"
    await waiting.turns(200)
    setup.upstream.script = answer("HTTP/1.1 200 OK", b"right")
    assert (await setup.ask(get("/b"))).body == b"right"


async def test_bytes_behind_an_answer_end_its_connection(setup: ProxySetup) -> None:
    poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    setup.upstream.script = scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + poison)
    assert (await setup.ask(get("/a"))).body == b"ok"
    setup.upstream.script = answer("HTTP/1.1 200 OK", b"right")
    assert (await setup.ask(get("/b"))).body == b"right"


async def test_the_environment_sends_nothing_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with proxy_setup(tmp_path, policy()) as made:
        assert (await made.ask(get("/a"))).status == 200


GET_LEAN = b"GET /b HTTP/1.1\r\nHost: kb\r\n\r\n"
POST_LEAN = b"POST /b HTTP/1.1\r\nHost: kb\r\nContent-Length: 0\r\n\r\n"
HEAD_LEAN = b"HEAD /b HTTP/1.1\r\nHost: kb\r\n\r\n"


@pytest.mark.parametrize("data", [GET_LEAN, HEAD_LEAN])
async def test_a_read_on_a_connection_that_was_closed_meanwhile_is_sent_once_more(
    setup: ProxySetup, data: bytes
) -> None:
    closing = ["first"]

    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if closing and seen.target == "/b":
            closing.pop()
            writer.close()  # as a server does whose time for an unused connection has run out
        else:
            await answer()(seen, writer)

    setup.upstream.script = closes
    await ask(setup.port, get("/a"))
    answered = await ask(setup.port, data)
    assert answered.status == 200
    assert setup.upstream.targets == ["/a", "/b", "/b"]
    assert len(await setup.sidecar.decisions()) == 2
    [_, lineage] = await setup.sidecar.lineage(2)
    assert lineage["detail"]["retries"] == 1
    assert lineage["outcome"] == "completed"


async def test_a_read_is_sent_once_more_and_not_again(setup: ProxySetup) -> None:
    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/b":
            writer.close()
        else:
            await answer()(seen, writer)

    setup.upstream.script = closes
    await ask(setup.port, get("/a"))
    assert (await ask(setup.port, GET_LEAN)).status == 502
    assert setup.upstream.targets == ["/a", "/b", "/b"]


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 2"])
async def test_what_may_do_harm_twice_or_was_answered_in_part_is_not_sent_again(
    setup: ProxySetup, said: bytes
) -> None:
    async def closes(seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.target == "/b":
            writer.write(said)
            await writer.drain()
            writer.close()
        else:
            await answer()(seen, writer)

    setup.upstream.script = closes
    await ask(setup.port, get("/a"))
    data = GET_LEAN if said else POST_LEAN
    assert (await ask(setup.port, data)).status == 502
    assert setup.upstream.targets == ["/a", "/b"]
