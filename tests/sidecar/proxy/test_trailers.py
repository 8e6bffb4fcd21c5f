"""Trailers: forwarded both ways by `trailers: forward` of a source, and dropped by default."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from policies.ground.errors import Malformed
from sidecar.http.headers import HOP_BY_HOP, sort_request_fields
from sidecar.http.messages.body import BodyStream
from sidecar.http.messages.chunks import (
    MAX_TRAILER_BYTES,
    MAX_TRAILER_FIELDS,
    BadTrailers,
    TrailerHead,
    Trailers,
)
from sidecar.http.request_target import canonical
from sidecar.http.server.request import ClientConnection, HttpRequest
from sidecar.proxy.messages import request_reader
from tests.sidecar.proxy.raw_client import get, one
from tests.support.proxy import policy, proxy_setup
from tests.support.scripted_source import answer, scripted

HEAD = b"POST /a HTTP/1.1\r\nHost: kb.test\r\nTransfer-Encoding: chunked\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
END = b"grpc-status: 0\r\nX-Sum:  a b \r\n"
FORWARDED = b"grpc-status: 0\r\nX-Sum: a b\r\n"

REFUSED = (
    "Transfer-Encoding", "Content-Length", "Host", "Content-Type", "Content-Encoding",
    "Content-Digest", "Authorization", "Cookie", "Set-Cookie", "Connection", "Upgrade", "Trailer",
    "TE", "X-API-Key", "X-Sluice-User", "X-Sluice-Sensitivity", "X-Sluice-Event-Id", "X-Amz-Date",
    "X-Forwarded-For", "Forwarded", "Proxy-Authorization", "Expect", "Range", "If-Match",
    "Cache-Control", "Age", "Vary", "ETag", "Location", "Via", "baggage", "traceparent",
    "X-HTTP-Method-Override", "X-Rewrite-URL", "X-Real-IP", "Access-Control-Allow-Origin",
    "Private-Token", "WWW-Authenticate", "Alt-Svc", "Max-Forwards", "Keep-Alive",
)  # fmt: skip


def body(trailers: bytes = b"") -> bytes:
    return b"3\r\nabc\r\n0\r\n" + trailers + b"\r\n"


def held(*fields: tuple[bytes, bytes]) -> Trailers:
    made = Trailers()
    for name, value in fields:
        made.add(name, value)
    return made


# -------------------------------------------------------------------------------- the rule


@pytest.mark.parametrize("name", [*REFUSED, *sorted(each.decode() for each in HOP_BY_HOP)])
def test_a_trailer_that_could_change_how_a_message_is_read_is_refused(name: str) -> None:
    for spelling in (name, name.upper(), name.replace("-", "_"), name.replace("-", ".")):
        with pytest.raises(BadTrailers, match="may not be a trailer"):
            TrailerHead().lines(held((b"x-fine", b"1"), (spelling.encode(), b"1")))
        with pytest.raises(BadTrailers, match="may not be a trailer"):
            TrailerHead((b"X-Fine , " + spelling.encode(),)).announcement()


@pytest.mark.parametrize(
    "trailers",
    [
        held((b"X-A", b"1"), (b"x_a", b"1")),
        held((b"X-A", b"1"), (b"X-A", b"1")),
        held((b"X-A", b"1\r\nHost: evil")),
        held((b"X-A", b"1\n")),
        held((b"X-A", b"1\r")),
        held((b"X-A", b"\0")),
        held((b"X A", b"1")),
        held((b"", b"1")),
        held((b"X-A:", b"1")),
        held(*((b"X%d" % each, b"") for each in range(MAX_TRAILER_FIELDS + 1))),
        held((b"X-A", bytes(MAX_TRAILER_BYTES))),
    ],
)
def test_an_ambiguous_or_oversized_trailer_is_refused(trailers: Trailers) -> None:
    with pytest.raises(Malformed):
        TrailerHead().lines(trailers)
    # Nothing is held of what can't be forwarded for its size.
    assert not (trailers.beyond and trailers.fields)


def test_trailers_up_to_the_limit_are_forwarded_without_those_of_one_hop() -> None:
    fields = [(b"X%d" % each, b"ab") for each in range(MAX_TRAILER_FIELDS)]
    lines = b"".join(b"%b: ab\r\n" % name for name, _ in fields)
    assert TrailerHead().lines(held(*fields)) == lines
    hop = TrailerHead((b"X0, X1,",), (b"close, x1",))
    assert hop.lines(held(*fields[:2])) == b"X0: ab\r\n"
    assert hop.announcement() == b"Trailer: X0\r\n"
    assert TrailerHead((b"X1",), (b"X1",)).announcement() == b""
    assert TrailerHead().lines(None) == b""


def test_bad_trailers_that_arrive_during_the_decision_fail_the_exchange() -> None:
    request = HttpRequest(cast(ClientConnection, None))
    request.body = BodyStream.of(b"abc")
    request.body.trailers = held((b"Host", b"evil"))
    head = sort_request_fields([(b"Transfer-Encoding", b"chunked")])
    sent = request_reader.forwarded_request(request, head, canonical("/a"), None, trailers=True)
    assert (sent.body, sent.stream) == (b"", request.body)
    with pytest.raises(BadTrailers):
        request.body.take()


# ------------------------------------------------------------------------------ whole and in pieces


async def read(reader: asyncio.StreamReader) -> bytes:
    """A response up to the end of its length or of its last chunk, or of the connection."""
    raw = await reader.readuntil(b"\r\n\r\n")
    lower = raw.lower()
    if b"content-length: " in lower:
        return raw + await reader.readexactly(int(lower.split(b"content-length: ")[1].split()[0]))
    while not raw.endswith(b"\r\n0\r\n"):
        line = await reader.readline()
        if not line:
            return raw
        raw += line
    while (line := await reader.readline()) not in (b"\r\n", b""):
        raw += line
    return raw + line


class Agent:
    """A connection to the sidecar that takes bytes as they are given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, *parts: bytes) -> bytes:
        self.writer.write(b"".join(parts))
        async with asyncio.timeout(10):
            return await read(self.reader)


async def connected(port: int) -> Agent:
    return Agent(*await asyncio.open_connection("127.0.0.1", port))


async def test_trailers_are_forwarded_in_both_directions_only_if_set(tmp_path: Path) -> None:
    said = b"Trailer: grpc-status, X-Sum\r\n"
    for name in ("forward", "drop"):
        (tmp_path / name).mkdir()
        forwards = name == "forward"
        async with proxy_setup(tmp_path / name, policy(), writes="allow", trailers=name) as setup:
            setup.upstream.script = scripted(RESPONSE + said + b"\r\n" + body(END))
            agent = await connected(setup.port)
            # The next request begins right behind the trailers.
            both = HEAD + said + b"TE: gzip, trailers\r\n\r\n" + body(END) + get("/b")
            first, second = await agent.ask(both), await agent.ask(b"")
            for each in (first, second):
                assert each.endswith(body(FORWARDED if forwards else b""))
                assert (said in each) == forwards
            post, again = setup.upstream.seen
            assert (post.body, post.trailers) == (b"abc", FORWARDED if forwards else b"")
            assert post.values("trailer") == (["grpc-status, X-Sum"] if forwards else [])
            assert post.values("te") == (["trailers"] if forwards else [])
            assert post.values("connection") == (["TE"] if forwards else [])
            assert (again.target, again.values("te"), again.trailers) == ("/b", [], b"")
            # In pieces, the body passes through as it comes.
            for piece in (HEAD + b"\r\n", b"3\r\nab", b"c\r\n0\r\nX-", b"Sum: 1\r\n"):
                agent.writer.write(piece)
                await asyncio.sleep(0)
                await agent.writer.drain()
            setup.upstream.script = scripted(
                RESPONSE + b"\r\n3\r\nabc\r\n", None, b"0\r\nX-S", None, b"um: 2\r\n\r\n"
            )
            answered = await agent.ask(b"\r\n")
            assert answered.endswith(body(b"X-Sum: 2\r\n" if forwards else b""))
            assert setup.upstream.seen[2].trailers == (b"X-Sum: 1\r\n" if forwards else b"")
            # The parser begins anew for the body behind an offer, which is ignored.
            offer = HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
            await agent.ask(offer + body(END))
            assert setup.upstream.seen[3].trailers == (FORWARDED if forwards else b"")
            agent.writer.close()


BAD_REQUESTS = {
    "refused": b"X-Sluice-User: eve\r\n",
    "underscores": b"X_Forwarded_For: 1\r\n",
    "length": b"Content-Length: 3\r\n",
    "coding": b"Transfer-Encoding: chunked\r\n",
    "twice": b"X-A: 1\r\nx-a: 2\r\n",
    "too many": b"".join(b"X-%d: 1\r\n" % each for each in range(MAX_TRAILER_FIELDS + 1)),
    "too large": b"".join(b"X-%d: %b\r\n" % (each, b"y" * 2100) for each in range(4)),
    "folded": b"X-A: 1\r\n Host: evil\r\n",
    "bare LF": b"X-A: 1\nHost: evil\r\n",
    "bare CR": b"X-A: 1\rHost: evil\r\n",
    "NUL": b"X-A: 1\0\r\n",
    "space": b"X-A : 1\r\n",
    "no colon": b"GET /secret HTTP/1.1\r\n",
}


async def test_a_request_with_a_bad_trailer_is_refused_or_broken_off(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, policy(), writes="allow", trailers="forward") as setup:
        for trailers in BAD_REQUESTS.values():
            # Whole: nothing of it is forwarded.
            agent = await connected(setup.port)
            answered = await agent.ask(HEAD + b"\r\n" + body(trailers))
            assert answered.startswith(b"HTTP/1.1 400 "), trailers
            agent.writer.close()
        announced = HEAD + b"Trailer: X-Fine, Content-Type\r\n\r\n3\r\nab"
        agent = await connected(setup.port)
        assert (await agent.ask(announced)).startswith(b"HTTP/1.1 400 ")
        agent.writer.close()
        denied = [each for each in await setup.sidecar.decisions() if each[0] == "DENY"]
        # What can't be parsed breaks the body off after the decision, as without the setting.
        assert len(denied) == 6
        assert {each[1] for each in denied} == {"unreadable_request"}
        assert setup.upstream.seen == []
        # On its way: the data source never gets the end, nor what follows it.
        for trailers in BAD_REQUESTS.values():
            agent = await connected(setup.port)
            begun = len(setup.upstream.begun)
            agent.writer.write(HEAD + b"\r\n3\r\nabc\r\n")
            while len(setup.upstream.begun) == begun:
                await asyncio.sleep(0)
            answered = await agent.ask(b"0\r\n" + trailers + b"\r\n" + get("/next"))
            assert answered.startswith(b"HTTP/1.1 400 "), trailers
            assert b"trailer" in answered or b"framing is broken" in answered
            assert await agent.reader.read() == b""
            agent.writer.close()
        assert setup.upstream.seen == []
        # The pool of connections is whole.
        setup.upstream.script = answer(body=b"fine")
        assert (await one(setup.port, get("/a"))).body == b"fine"


BAD_RESPONSES = {
    "refused": b"Set-Cookie: a=1\r\n",
    "event id": b"X-Sluice-Event-Id: 1\r\n",
    **{name: BAD_REQUESTS[name] for name in ("coding", "twice", "too many", "folded", "bare LF")},
    "a second response": b"HTTP/1.1 200 OK\r\n",
}


async def test_a_response_with_a_bad_trailer_is_broken_off(tmp_path: Path) -> None:
    async with proxy_setup(tmp_path, policy(), trailers="forward") as setup:
        for trailers in BAD_RESPONSES.values():
            setup.upstream.script = scripted(RESPONSE + b"\r\n" + body(trailers))
            agent = await connected(setup.port)
            assert (await agent.ask(get("/a"))).startswith(b"HTTP/1.1 502 "), trailers
            agent.writer.close()
            release = asyncio.Event()

            async def late(_seen: object, writer: asyncio.StreamWriter) -> None:
                writer.write(RESPONSE + b"\r\n3\r\nabc\r\n")
                await release.wait()  # noqa: B023
                writer.write(b"0\r\n" + trailers + b"\r\n")  # noqa: B023

            setup.upstream.script = late
            agent = await connected(setup.port)
            agent.writer.write(get("/a"))
            begun = await agent.reader.readuntil(b"3\r\nabc\r\n")
            assert begun.startswith(b"HTTP/1.1 200 ")
            release.set()
            assert await agent.reader.read() == b""  # no last chunk
            agent.writer.close()
        setup.upstream.script = scripted(RESPONSE + b"Trailer: Host\r\n\r\n" + body())
        assert (await one(setup.port, get("/a"))).status == 502


async def test_agents_of_http_1_0_and_responses_without_chunks_get_no_trailers(
    tmp_path: Path,
) -> None:
    said = b"Trailer: X-Sum\r\n"
    async with proxy_setup(tmp_path, policy(), trailers="forward") as setup:
        setup.upstream.script = scripted(RESPONSE + said + b"\r\n" + body(b"X-Sum: 1\r\n"))
        old = await setup.ask(b"GET /a HTTP/1.0\r\nTE: trailers\r\n\r\n")
        assert old.body == b"abc"
        assert "trailer" not in old.fields
        assert setup.upstream.seen[0].values("te") == []
        setup.upstream.script = answer("HTTP/1.1 200 OK", b"abc", "Trailer: X-Sum")
        plain = await setup.ask(get("/a", "TE: trailers"))
        assert plain.body == b"abc"
        assert "trailer" not in plain.fields
        setup.upstream.script = scripted(RESPONSE + said + b"\r\n")
        assert (await setup.ask(b"HEAD /a HTTP/1.1\r\nHost: kb.test\r\n\r\n")).body == b""


async def test_report_mode_forwards_only_valid_trailers(tmp_path: Path) -> None:
    # Refused by the head alone: it writes.
    async with proxy_setup(tmp_path, policy(), trailers="forward", mode="report") as setup:
        agent = await connected(setup.port)
        assert (await agent.ask(HEAD + b"\r\n" + body(END))).startswith(b"HTTP/1.1 200 ")
        answered = await agent.ask(HEAD + b"\r\n" + body(b"Host: evil\r\n"))
        assert answered.startswith(b"HTTP/1.1 400 ")
        assert [each.trailers for each in setup.upstream.seen] == [FORWARDED]
        agent.writer.close()
