"""Requests of HTTP/2 that could become two requests, or other ones, on their way to a data source
that speaks HTTP/1.1; and floods over real connections. The frames are made by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sidecar.http.authority import Authority
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from tests.fuzz_http2 import fuzz
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import Fields, Frame, data, headers
from tests.sidecar.proxy.every_port import EveryPort, every_port
from tests.sidecar.proxy.test_http2 import TUNNEL
from tests.support import properties
from tests.support.certificates import authority
from tests.support.waiting import until_async

PROTOCOL_ERROR, CALM = 1, 11
PORTS = pytest.mark.parametrize(
    ("port", "before", "scheme"),
    [
        ("kb", b"", b"http"),
        ("secure", b"", b"https"),
        (FORWARD_PROXY, b"", b"http"),
        (FORWARD_PROXY, TUNNEL, b"http"),
        (TRANSPARENT, b"", b"http"),
        (FORWARD_PROXY, TUNNEL.replace(b"kb.test:80", b"secure.test:443"), b"https"),
        (TRANSPARENT, b"", b"https"),
    ],
    ids=[
        "listen",
        "tls",
        "forward proxy",
        "tunnel",
        "redirected",
        "tls in a tunnel",
        "tls redirected",
    ],
)


@dataclass
class Agent:
    """A client that sends frames made by hand, and the frames that it got. `host` and `scheme` are
    those of its requests."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    host: bytes
    scheme: bytes
    got: list[Frame] = field(default_factory=list)
    _rest: bytes = b""
    _last: int = -1

    def head(self, *more: tuple[bytes, bytes], **changed: bytes) -> list[tuple[bytes, bytes]]:
        """The head of a request: its pseudo-header fields, by their names, and more fields."""
        pseudo = {
            b"method": b"GET", b"scheme": self.scheme, b"authority": self.host, b"path": b"/open/x",
        }  # fmt: skip
        pseudo |= {name.encode(): value for name, value in changed.items()}
        return [*((b":" + name, value) for name, value in pseudo.items()), *more]

    def stream(self) -> int:
        self._last += 2
        return self._last

    def send(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))

    def end_of(self, stream: int) -> Frame | None:
        """The frame that ended a stream, or the connection; None before."""
        for each in self.got:
            if each.kind == frames.GOAWAY and each.code:
                return each
            if each.stream == stream:
                if each.kind == frames.RST_STREAM:
                    return each
                if each.kind in (frames.DATA, frames.HEADERS) and each.flags & 1:
                    return each
        return None

    async def result(self, stream: int) -> Frame | None:
        """The frame that ended a stream, or the connection; None if nothing more arrives."""
        while (end := self.end_of(stream)) is None:
            new = await asyncio.wait_for(self.reader.read(65_536), 60)
            if not new:
                return None
            self._rest += new
            for each in frames.read(self._rest):
                self.got.append(each)
                self._rest = self._rest[9 + len(each.payload) :]
        return end

    async def request(self, head: Fields, *body: bytes) -> Frame | None:
        stream = self.stream()
        self.send(headers(stream, head, end=not body))
        for number, each in enumerate(body, 1):
            self.send(data(stream, each, end=number == len(body)))
        return await self.result(stream)


@asynccontextmanager
async def agent(made: EveryPort, port: str, before: bytes, scheme: bytes) -> AsyncIterator[Agent]:
    host = b"kb.test"
    made.meant[:] = [Authority("192.0.2.66", 443 if scheme == b"https" else 80)]
    reader, writer = await made.open(port)
    if before:
        writer.write(before)
        await reader.readuntil(b"\r\n\r\n")
    if scheme == b"https":
        host, secure = b"secure.test", authority().client()
        secure.set_alpn_protocols(["h2"])
        await writer.start_tls(secure, server_hostname="secure.test")
    writer.write(frames.begin())
    try:
        yield Agent(reader, writer, host, scheme)
    finally:
        # It may have stopped reading, and would not notice the end.
        writer.transport.abort()


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_frames_are_passed_on_whole"
)
async def test_a_short_fuzz_finds_nothing() -> None:
    found = await fuzz(5, properties.chance("http2").randrange(1 << 32))
    assert found.fatal == []
    assert found.counts["heads"]
    assert found.counts["requests"]


HEADS: dict[str, tuple[dict[str, bytes], list[tuple[bytes, bytes]]]] = {
    "CR in a value": ({}, [(b"x-a", b"1\rx-b: 2")]),
    "LF in a value": ({}, [(b"x-a", b"1\nx-b: 2")]),
    "a request in a value": ({}, [(b"x-a", b"1\r\n\r\nGET /secret HTTP/1.1\r\nhost: kb.test")]),
    "NUL in a value": ({}, [(b"x-a", b"1\0")]),
    "a line break in a name": ({}, [(b"x-a: 1\r\nx-b", b"2")]),
    "a colon in a name": ({}, [(b"x-a:1", b"2")]),
    "a space in a name": ({}, [(b"x-a ", b"2")]),
    "an empty name": ({}, [(b"", b"2")]),
    "an upper case name": ({}, [(b"X-a", b"2")]),
    "transfer-encoding": ({}, [(b"transfer-encoding", b"chunked")]),
    "connection": ({}, [(b"connection", b"x-sluice-user")]),
    "keep-alive": ({}, [(b"keep-alive", b"1")]),
    "proxy-connection": ({}, [(b"proxy-connection", b"close")]),
    "upgrade": ({}, [(b"upgrade", b"websocket")]),
    "te": ({}, [(b"te", b"trailers, chunked")]),
    "two lengths": ({}, [(b"content-length", b"0"), (b"content-length", b"0")]),
    "a list of lengths": ({}, [(b"content-length", b"0, 0")]),
    "a signed length": ({}, [(b"content-length", b"+0")]),
    "a length without a body": ({}, [(b"content-length", b"3")]),
    "a line break in the path": ({"path": b"/a HTTP/1.1\r\nhost: kb.test\r\n\r\nGET /b"}, []),
    "a space in the path": ({"path": b"/a /b"}, []),
    "a path without a slash": ({"path": b"a"}, []),
    "an absolute target": ({"path": b"http://kb.test/a"}, []),
    "an empty path": ({"path": b""}, []),
    "a path that is not ASCII": ({"path": b"/\xc3\xa9"}, []),
    "a line break in the method": ({"method": b"GET / HTTP/1.1\r\n\r\nGET"}, []),
    "a method in lower case": ({"method": b"get"}, []),
    "an unknown method": ({"method": b"FETCH"}, []),
    "CONNECT": ({"method": b"CONNECT"}, []),
    "extended CONNECT": ({"method": b"CONNECT", "protocol": b"websocket"}, []),
    "a line break in the host": ({"authority": b"kb.test\r\nx-a: 1"}, []),
    "a path in the host": ({"authority": b"kb.test/a"}, []),
    "another host": ({}, [(b"host", b"other.test")]),
    "two hosts": ({}, [(b"host", b"kb.test"), (b"host", b"kb.test")]),
    "another scheme": ({"scheme": b"ftp"}, []),
    "a pseudo-header field twice": ({}, [(b":path", b"/secret")]),
    "a pseudo-header field of responses": ({"status": b"200"}, []),
    "an unknown pseudo-header field": ({"user": b"root"}, []),
}


@PORTS
@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_a_head_that_http_1_would_not_have_is_refused"
)
async def test_a_head_that_could_smuggle_is_reset_and_recorded_and_nothing_reaches_the_source(
    tmp_path: Path, port: str, before: bytes, scheme: bytes
) -> None:
    async with every_port(tmp_path) as made, agent(made, port, before, scheme) as client:
        for name, (changed, more) in HEADS.items():
            end = await client.request(client.head(*more, **changed))
            assert end is not None, name
            assert (end.kind, end.code) == (frames.RST_STREAM, PROTOCOL_ERROR), name
        head = client.head((b":path", b"/late"))
        assert (await client.request([*head[1:], head[0]])) is not None
        end = await client.request(client.head(path=b"/open/end"))
        assert end is not None
        assert end.kind == frames.DATA
        decisions = sorted(await made.sidecar.decisions())
        assert [each[:2] for each in decisions[1:]] == [("DENY", "unreadable_request")] * (
            len(HEADS) + 1
        )
        assert [each.target for each in made.upstream.seen] == ["/open/end"]


LENGTH = (b"content-length", b"5")
BODIES: dict[str, tuple[list[tuple[bytes, bytes]], list[bytes]]] = {
    "shorter than its length": ([LENGTH], [b"abc"]),
    "longer than its length": ([LENGTH], [b"abcdeGET /secret HTTP/1.1\r\nhost: kb.test\r\n\r\n"]),
    "longer in its second frame": ([LENGTH], [b"abcde", b"GET /secret HTTP/1.1\r\n\r\n"]),
}


@PORTS
@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_frames_are_passed_on_whole"
)
@pytest.mark.parametrize("path", [b"/a", b"/ask/a"], ids=["passed on", "judged"])
async def test_a_body_of_another_length_than_announced_never_looks_whole(
    tmp_path: Path, port: str, before: bytes, scheme: bytes, path: bytes
) -> None:
    if scheme == b"https" and path == b"/a":
        path = b"/ask/a"  # it takes no writes
    async with every_port(tmp_path) as made, agent(made, port, before, scheme) as client:
        for name, (more, body) in BODIES.items():
            end = await client.request(client.head(*more, method=b"POST", path=path), *body)
            assert end is not None, name
            assert (end.kind, end.code) == (frames.RST_STREAM, PROTOCOL_ERROR), name
        end = await client.request(client.head(path=b"/open/end"))
        assert end is not None
        assert end.kind == frames.DATA

        async def broken_off() -> bool:
            return all(
                each.target != path.decode() or not each.whole for each in made.upstream.seen
            )

        await until_async("the data source knows", broken_off)
        assert "/secret" not in [each.target for each in made.upstream.seen]


@PORTS
@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_frames_are_passed_on_whole"
)
async def test_a_body_with_the_bytes_of_a_request_stays_a_body(
    tmp_path: Path, port: str, before: bytes, scheme: bytes
) -> None:
    body = b"0\r\n\r\nGET /secret HTTP/1.1\r\nHost: kb.test\r\n\r\n"
    async with every_port(tmp_path) as made, agent(made, port, before, scheme) as client:
        for more in ([], [(b"content-length", b"%d" % len(body))]):
            head = client.head(*more, method=b"POST", path=b"/ask/a")
            end = await client.request(head, body[:10], body[10:])
            assert end is not None
        assert {each.target for each in made.upstream.seen} <= {"/ask/a"}


FLOODS = {
    "PING": frames.ping() * 20_000,
    "SETTINGS": frames.settings() * 20_000,
    "WINDOW_UPDATE": frames.update(0, 1) * 20_000,
    "PRIORITY": frames.frame(frames.PRIORITY, 1, bytes(4) + b"\x10") * 20_000,
    "unknown": frames.frame(frames.UNKNOWN, 0, bytes(100)) * 20_000,
}


@PORTS
@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_a_frame_above_the_limit_of_its_kind_is_a_flood"
)
@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_gets_its_reason_and_one_record_and_leaves_nothing(
    tmp_path: Path, port: str, before: bytes, scheme: bytes, kind: str
) -> None:
    async with every_port(tmp_path) as made:
        async with agent(made, port, before, scheme) as client:
            stream = client.stream()
            client.send(headers(stream, client.head(path=b"/silent")))
            client.send(FLOODS[kind])
            end = await client.result(stream)
            assert end is not None, "the reason is not lost to a reset"
            assert (end.kind, end.code) == (frames.GOAWAY, CALM)
        decisions = [each[:2] for each in await made.sidecar.decisions()]
        assert decisions.count(("DENY", "unreadable_request")) == 1
        await made.nothing_left()


@PORTS
@pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_frames_are_passed_on_whole"
)
@pytest.mark.parametrize("end", ["stop", "abort", "half close", "goaway", "broken"])
async def test_the_end_of_a_connection_in_the_middle_of_its_streams_leaves_nothing(
    tmp_path: Path, port: str, before: bytes, scheme: bytes, end: str
) -> None:
    async with every_port(tmp_path) as made:
        async with agent(made, port, before, scheme) as client:
            # Room for all: each stream's own window is left to fill.
            client.send(frames.update(0, 1 << 20))
            for path in (b"/silent", b"/stream", b"/endless", b"/events", b"/big"):
                client.send(headers(client.stream(), client.head(path=path)))
            posted = {path: client.stream() for path in (b"/a", b"/ask/a", b"/secret")}
            for path, stream in posted.items():
                client.send(headers(stream, client.head(method=b"POST", path=path), end=False))
                client.send(data(stream, b"half"))
            await client.result(posted[b"/secret"])
            await until_async("the data source has them", lambda: len(made.upstream.begun) >= 5)
            if end == "abort":
                client.writer.transport.abort()
            elif end == "half close" and client.writer.can_write_eof():
                client.writer.write_eof()
            elif end == "broken":
                client.send(data(0, b"x"))
            elif end == "goaway":
                client.send(frames.goaway())
            await made.proxy.close(0.2)
        await made.nothing_left()
        for decision, outcomes in (await made.outcomes()).values():
            assert len(outcomes) == (decision == "ALLOW") or not outcomes
