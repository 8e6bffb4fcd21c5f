"""Requests of HTTP/2 in unusual forms, right and wrong ones, and connections that change between
HTTP/1.1 and HTTP/2: whatever the bytes are, what is judged is what the data source gets."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.http.http2.session import PREFACE
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import data, frame, headers, update
from tests.sidecar.proxy.every_port import EveryPort, every_port
from tests.sidecar.proxy.test_http2 import TUNNEL
from tests.sidecar.proxy.test_http2_smuggling import PORTS, PROTOCOL_ERROR, Agent, agent
from tests.support.certificates import authority

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/http/http2/test_frame_limits.py::test_frames_are_passed_on_whole"
)

Sent = Callable[[Agent, int], bytes]


def _trailers(*fields: tuple[bytes, bytes], end: bool = True) -> Sent:
    def sent(agent: Agent, stream: int) -> bytes:
        head = agent.head()
        body = headers(stream, head, end=False) + data(stream, b"abc")
        return body + headers(stream, fields, end=end)

    return sent


def _padded(agent: Agent, stream: int) -> bytes:
    head = frames.fields(agent.head())
    flags = frames.END_HEADERS | frames.PADDED | frames.PRIORITISED
    body = data(stream, pad=255) + data(stream, b"abc", pad=3, end=True)
    return frame(frames.HEADERS, stream, b"\5" + bytes(4) + b"\x10" + head + bytes(5), flags) + body


def _settings(values: dict[int, int]) -> Sent:
    def sent(agent: Agent, stream: int) -> bytes:
        head = agent.head()
        body = headers(stream, head, end=False) + data(stream, b"abc", end=True)
        return frames.settings(values) + body

    return sent


WRONG: dict[str, Sent] = {
    "a pseudo-header field in trailers": _trailers((b":path", b"/x")),
    "a status in trailers": _trailers((b":status", b"200")),
    "a coding in trailers": _trailers((b"transfer-encoding", b"chunked")),
    "a connection field in trailers": _trailers((b"connection", b"x")),
    "a length in trailers": _trailers((b"content-length", b"9")),
    "a request in trailers": _trailers((b"x", b"1\r\n\r\nGET /secret HTTP/1.1")),
    "upper case in trailers": _trailers((b"X", b"1")),
    "an empty name in trailers": _trailers((b"", b"1")),
    "trailers that do not end": _trailers((b"x", b"1"), end=False),
    "a short body before trailers": lambda agent, stream: (
        headers(
            stream,
            agent.head((b"content-length", b"5")),
            end=False,
        )
        + data(stream, b"abc")
        + headers(stream, [(b"x", b"1")])
    ),
    "a name of Huffman's code without a letter": lambda agent, stream: frame(
        frames.HEADERS, stream, frames.fields(agent.head()) + b"\x10\x80\x01x", 5
    ),
}
RIGHT: dict[str, Sent] = {
    "trailers": _trailers((b"x", b"1"), (b"host", b"other.test"), (b"x-sluice-user", b"root")),
    "padding and a priority": _padded,
    "the largest settings": _settings(
        {1: 0xFFFFFFFF, 3: 0xFFFFFFFF, 4: 0x7FFFFFFF, 5: 0xFFFFFF, 6: 0xFFFFFFFF, 8: 1, 0x99: 5}
    ),
    "the smallest settings": _settings({1: 0, 3: 0, 4: 65_535, 5: 16_384, 6: 0}),
    "a priority of its own": lambda agent, stream: (
        frame(frames.PRIORITY, stream, stream.to_bytes(4, "big") + b"\x10")
        + _settings({})(agent, stream)
    ),
}


@PORTS
async def test_a_form_that_is_wrong_is_reset_and_one_that_is_right_means_the_same(
    tmp_path: Path, port: str, before: bytes, scheme: bytes
) -> None:
    async with every_port(tmp_path) as made, agent(made, port, before, scheme) as client:
        client.send(update(0, 1 << 20))
        for name, sent in WRONG.items():
            stream = client.stream()
            client.send(sent(client, stream))
            end = await client.result(stream)
            assert end is not None, name
            assert (end.kind, end.code) == (frames.RST_STREAM, PROTOCOL_ERROR), name
        assert [each for each in made.upstream.seen if each.whole] == []
        for name, sent in RIGHT.items():
            stream = client.stream()
            client.send(sent(client, stream))
            end = await client.result(stream)
            assert end is not None, name
            assert end.kind == frames.DATA, name
            got = made.upstream.seen.pop()
            assert (got.target, got.body, got.trailers) == ("/open/x", b"abc", b""), name
            assert not got.values("x-sluice-user")


async def _speak(made: EveryPort, port: str, before: bytes) -> tuple[bytes, asyncio.StreamWriter]:
    """All that comes on a connection that sends these bytes."""
    reader, writer = await made.open(port)
    if before.startswith(b"CONNECT"):
        connect, _, before = before.partition(b"\r\n\r\n")
        writer.write(connect + b"\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
    writer.write(before)
    got = b""
    try:
        async with asyncio.timeout(5):
            while more := await reader.read(65_536):
                got += more
    except (TimeoutError, ConnectionError):
        pass
    return got, writer


GET = b"GET /open/1 HTTP/1.1\r\nHost: kb.test\r\n\r\n"
CLEAR = pytest.mark.parametrize(
    ("port", "connect"),
    [("kb", b""), (FORWARD_PROXY, b""), (FORWARD_PROXY, TUNNEL), (TRANSPARENT, b"")],
    ids=["listen", "forward proxy", "tunnel", "redirected"],
)


@CLEAR
@pytest.mark.parametrize(
    "sent",
    [
        GET + frames.begin() + headers(1, frames.GET),
        PREFACE[:16] + GET,
        PREFACE[:19] + b"N\r\n\r\n" + GET,
        b"PRI /open/1 HTTP/2.0\r\nHost: kb.test\r\n\r\n" + GET,
        b"GET /open/1 HTTP/2.0\r\nHost: kb.test\r\n\r\n" + GET,
        b" " + PREFACE + GET,
    ],
    ids=["behind a request", "cut", "changed", "a path", "a version", "a space"],
)
async def test_what_only_resembles_the_beginning_of_http_2_is_refused_as_http_1(
    tmp_path: Path, port: str, connect: bytes, sent: bytes
) -> None:
    first = sent.startswith(b"GET /open/1 HTTP/1.1")
    async with every_port(tmp_path) as made:
        absolute = sent.replace(b" /open/1 ", b" http://kb.test/open/1 ")
        got, writer = await _speak(
            made, port, connect + (absolute if port == FORWARD_PROXY and not connect else sent)
        )
        writer.close()
        assert got.count(b"HTTP/1.1 ") == 1 + first
        assert got.count(b"HTTP/1.1 400 ") == 1
        assert [each.target for each in made.upstream.seen] == ["/open/1"] * first


@pytest.mark.parametrize("offered", [["h2"], ["http/1.1"], None], ids=["h2", "http/1.1", "none"])
@pytest.mark.parametrize("speaks", [1, 2])
async def test_within_tls_the_first_bytes_tell_the_protocol_whatever_was_negotiated(
    tmp_path: Path, offered: list[str] | None, speaks: int
) -> None:
    secure: ssl.SSLContext = authority().client()
    if offered:
        secure.set_alpn_protocols(offered)
    async with every_port(tmp_path) as made:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", made.proxy.port("secure"), ssl=secure, server_hostname="secure.test"
        )
        if speaks == 1:
            writer.write(GET.replace(b"kb.test", b"secure.test"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        else:
            client = Agent(reader, writer, b"secure.test", b"https")
            writer.write(frames.begin())
            end = await client.request(client.head(path=b"/open/1"))
            assert end is not None
            assert end.kind == frames.DATA
        writer.close()
        assert [each.target for each in made.upstream.seen] == ["/open/1"]
        assert [each[0] for each in await made.sidecar.decisions()] == ["ALLOW"]
