"""Hundreds of connections that no well-behaved client makes: garbage, half heads, resets, TLS where
none is spoken, requests behind requests that are not answered, readers that read nothing. Whatever
they do, nothing of them is left, and what was allowed has its outcome in the log."""

import asyncio
import itertools
import random
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.http.authority import Authority
from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.every_port import BIG, PORTS, EveryPort, every_port
from tests.sidecar.proxy.raw_client import get, leave
from tests.support import waiting
from tests.support.certificates import authority

COUNT, AT_ONCE = 400, 100

# Everything ends by itself within a second: what does not has no limit.
# expires on purpose
QUICK = replace(
    LIMITS,
    idle_seconds=0.4,
    handshake_seconds=0.3,
    opening_seconds=0.3,
    lingering_seconds=0.2,
    half_close_seconds=0.3,
    upload_idle_seconds=0.3,
    inspected_seconds=0.3,
    lookup_seconds=0.3,
    stream_idle_seconds=0.6,
    upstream_idle_seconds=0.2,
    tunnel_idle_seconds=0.5,
    reauthorize_seconds=0.1,
)

HOST = b"Host: kb.test\r\n"
JSON = b"Content-Type: application/json\r\n"
SEARCH = b"POST /collections/open/points/query HTTP/1.1\r\n" + HOST + JSON
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: kb.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
TUNNEL = b"CONNECT kb.test:80 HTTP/1.1\r\nHost: kb.test:80\r\n\r\n"

SENT = [
    *(get(target) for target in ("/a", "/silent", "/events", "/stream", "/big", "/secret", "/..")),
    *(get(f"http://kb.test{target}") for target in ("/a", "/silent", "/stream", "/big", "/secret")),
    get("/silent") + get("/a") * 3000,
    get("/a") * 20,
    *(b"POST %b HTTP/1.1\r\n%bContent-Length: 90000\r\n\r\n" % (target, HOST) + bytes(2000)
      for target in (b"/a", b"/ask/a", b"/secret", b"/ask/secret")),
    *(b"POST /a HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n%b" % (HOST, part)
      for part in (b"5\r\nhello\r\n", b"5\r\nhel", b"zz\r\n", b"5\r\nhello\r\n0\r\n\r\n")),
    SEARCH + b"Content-Length: 400\r\n\r\n{",
    SEARCH + b'Content-Length: 15\r\n\r\n{"query":[0.1]}',
    get("/collections"),
    SOCKET,
    SOCKET + b"early",
    TUNNEL,
    TUNNEL + get("/silent"),
    TUNNEL + SOCKET,
    TUNNEL + get("/a") + SOCKET,
    b"CONNECT tcp.test:5432 HTTP/1.1\r\nHost: tcp.test:5432\r\n\r\nhi",
    b"CONNECT evil.test:1 HTTP/1.1\r\nHost: evil.test:1\r\n\r\nhi",
    b"CONNECT secure.test:443 HTTP/1.1\r\nHost: secure.test:443\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /a HT",
    b"\0\1\2\3",
    b"x" * 40_000,
    b"GET /a HTTP/1.1\r\n" + b"A: b\r\n" * 500,
]  # fmt: skip
ENDS = ("close", "reset", "half-close", "stay", "trickle", "read nothing")


class Odd:
    """One odd connection. `random` chooses what it does."""

    def __init__(self, ports: EveryPort, random: random.Random) -> None:
        self.ports = ports
        self.port = random.choice(PORTS)
        self.over_tls = self.port == "secure" and random.random() < 0.7
        data = random.choice(SENT) if random.random() < 0.9 else random.randbytes(300)
        self.data = data[: random.randrange(len(data)) + 1] if random.random() < 0.3 else data
        self.end = random.choice(ENDS)
        self.turns = random.choice((0, 1, 5, 50))
        self.got = b""

    async def run(self) -> None:
        # The sidecar may be gone before the client has done all that it meant to do.
        with suppress(OSError, ssl.SSLError, RuntimeError, AttributeError, TimeoutError):
            await self._run()

    async def _run(self) -> None:
        tls = self.over_tls
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.ports.proxy.port(self.port),
            limit=4096,
            ssl=authority().client() if tls else None,
            server_hostname="secure.test" if tls else None,
        )
        try:
            writer.write(self.data)
            await waiting.turns(self.turns)
            if self.end == "close":
                writer.close()
            elif self.end == "reset":
                leave(writer)
            elif self.end == "read nothing":
                await asyncio.sleep(1)  # longer than any limit
            else:
                if self.end == "half-close":
                    writer.write_eof()
                for byte in self.data[:10] if self.end == "trickle" else b"":
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(0.02)
                async with asyncio.timeout(2):
                    while part := await reader.read(65536):
                        self.got += part
        finally:
            writer.transport.abort()


async def test_nothing_is_left_of_an_odd_connection_to_each_port_with_each_end(
    tmp_path: Path,
) -> None:
    choice = random.Random(1)
    kinds = list(itertools.product(PORTS, ENDS))

    def odd(ports: EveryPort) -> Odd:
        made = Odd(ports, choice)
        made.port, made.end = kinds.pop()
        made.over_tls = made.port == "secure"
        return made

    await _leave_nothing(tmp_path, choice, odd, len(kinds))


@pytest.mark.deep(stands_in="test_nothing_is_left_of_an_odd_connection_to_each_port_with_each_end")
async def test_nothing_is_left_of_odd_connections(tmp_path: Path) -> None:
    choice = random.Random(15)
    await _leave_nothing(tmp_path, choice, lambda ports: Odd(ports, choice), COUNT)


async def _leave_nothing(
    tmp_path: Path, choice: random.Random, make: Callable[[EveryPort], Odd], count: int
) -> None:
    async with every_port(tmp_path, QUICK) as ports:
        places = [Authority("192.0.2.66", port) for port in (80, 443, 5432)]
        odd = []
        room = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with room:
                ports.meant[0] = choice.choice([*places, None])
                made = make(ports)
                odd.append(made)
                await made.run()

        await asyncio.gather(*(one() for _ in range(count)))
        await ports.nothing_left()
        outcomes = await ports.outcomes()
        answered = [each for made in odd for each in _EVENT.findall(made.got)]
        assert answered
        assert {each.decode() for each in answered} <= set(outcomes)
        # A write is allowed without an outcome.
        assert max(len(each) for _, each in outcomes.values()) == 1
        assert {"completed", "truncated"} <= {
            each for _, made in outcomes.values() for each in made
        }


_EVENT = re.compile(rb"X-Sluice-Event-Id: ([0-9a-f-]{36})")


@pytest.mark.parametrize("port", [FORWARD_PROXY, TRANSPARENT])
async def test_nothing_is_left_of_a_websocket_inside_of_a_tunnel(tmp_path: Path, port: str) -> None:
    async with every_port(tmp_path) as ports:
        reader, writer = await ports.open(port)
        writer.write(TUNNEL + SOCKET if port == FORWARD_PROXY else SOCKET)
        assert (await reader.readuntil(b"hello")).count(b"HTTP/1.1 101 ") == 1
        leave(writer)
        await ports.nothing_left()
        [lineage] = await ports.sidecar.lineage()
        assert lineage["outcome"] == "truncated"


@pytest.mark.parametrize("behind", [1, 2, 3, 3000])
async def test_a_client_that_left_unread_requests_is_not_awaited(
    tmp_path: Path, behind: int
) -> None:
    """While the data source is silent: the client's end is only seen if it is read, and tells
    nothing of whether it is still there."""
    async with every_port(tmp_path, QUICK) as ports:
        _, writer = await ports.open("kb")
        writer.write(get("/silent"))
        await waiting.until_async("it was sent", lambda: ports.upstream.seen)
        for _ in range(min(behind, 3)):
            writer.write(get("/a") * (behind // min(behind, 3)))
            await waiting.turns()
        writer.close()
        await ports.nothing_left()
        assert [target for target in ports.upstream.targets if target != "/silent"] == []


@pytest.mark.deep(
    stands_in="tests/sidecar/proxy/test_streaming.py::test_a_half_close_in_the_middle_of_an_answer_cuts_nothing_off"
)
async def test_a_half_closed_client_that_reads_slowly_gets_its_whole_answer(
    tmp_path: Path,
) -> None:
    """The time that a client waits for the beginning of a response doesn't run while it is the
    client that takes nothing."""
    limits = replace(LIMITS, half_close_seconds=8.0)
    async with every_port(tmp_path, limits) as ports:
        reader, writer = await ports.open("kb")
        writer.write(get("/big") + get("/a"))
        writer.write_eof()
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(16)  # twice as long as a response is waited for
        async with asyncio.timeout(waiting.PATIENCE):
            rest = await reader.read()
        assert rest.count(b"HTTP/1.1 200") == 1
        assert len(rest) > BIG
        writer.close()
