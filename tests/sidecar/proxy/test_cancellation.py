"""A client that leaves, at each point at which its request waits for something: one run for each
point, until a request comes through whole. Afterwards nothing of it is left, no connection to the
data source carries a response that belongs to it, and the log has what was decided and how it
ended."""

import asyncio
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sidecar.proxy.assembly import FORWARD_PROXY, TRANSPARENT
from sidecar.proxy.limits import LIMITS
from tests.sidecar.proxy.every_port import SWITCHED, EveryPort, every_port
from tests.sidecar.proxy.raw_client import get
from tests.sidecar.proxy.segmented_agent import Agent, answers, chunks
from tests.sidecar.proxy.suspensions import Suspensions
from tests.support import waiting
from tests.support.scripted_source import Seen

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

# expires on purpose
QUICK = replace(LIMITS, half_close_seconds=0.3, lingering_seconds=0.3, upstream_idle_seconds=0.3)
MOST = 200
"""No request waits more often."""

LOOKUPS = ("/aliases", "/collections")
_ALIASES = b'{"result":{"aliases":[{"alias_name":"alias","collection_name":"open"}]}}'
_COLLECTIONS = b'{"result":{"collections":[{"name":"open"},{"name":"secret"}]}}'
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 18\r\n\r\n"


async def in_parts(seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Answers with its target, in three parts that arrive one after the other."""
    body = {"/aliases": _ALIASES, "/collections": _COLLECTIONS}.get(
        seen.target, seen.target.encode() * 3
    )
    data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    data += b"" if seen.line.startswith("HEAD ") else body
    if "events" in seen.target:
        data = _EVENTS + b"data: 1\n\ndata: 2\n\n"
    if seen.values("upgrade"):
        data = SWITCHED + b" and goodbye"
    third = -(-len(data) // 3)
    for at in range(0, len(data), third):
        writer.write(data[at : at + third])
        await waiting.turns(3)
    if seen.values("upgrade"):
        writer.close()


@dataclass(frozen=True)
class Case:
    """A request that arrives at `port` in `segments`. Its answer is whole when it ends `with_`."""

    port: str
    segments: tuple[bytes, ...]
    with_: bytes
    new: bool = False
    """Whether there is no idle connection to the data source."""

    def whole(self, received: bytes) -> bool:
        return received.endswith(self.with_)


def _head(line: str, *fields: str, host: str = "kb.test") -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *fields]).encode() + b"\r\n\r\n"


_JSON = "Content-Type: application/json"
_ASK_SOCKET = _head(
    "GET /ws",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
_TUNNEL = _head("CONNECT kb.test:80", host="kb.test:80")
_BODY = b"x" * 300
_CHUNKS = chunks(_BODY, 100)
_SEARCH = b'{"query":[0.1]}'
CASES = {
    "get": Case("kb", (get("/a"),), b"/a/a/a"),
    "get, new": Case("kb", (get("/a"),), b"/a/a/a", new=True),
    "get in two": Case("kb", (get("/a")[:20], get("/a")[20:]), b"/a/a/a"),
    "two gets": Case("kb", (get("/a") + get("/b"),), b"/b/b/b"),
    "head": Case("kb", (_head("HEAD /a"),), b"\r\n\r\n"),
    "denied": Case("kb", (get("/secret"),), b"}"),
    "unreadable": Case("kb", (get("/../a"),), b"}"),
    "post": Case("kb", (_head("POST /a", "Content-Length: 300") + _BODY,), b"/a/a/a"),
    "post in parts, new": Case(
        "kb", (_head("POST /a", "Content-Length: 300"), _BODY[:9], _BODY[9:]), b"/a/a/a", new=True
    ),
    "chunks": Case(
        "kb",
        (_head("POST /a", "Transfer-Encoding: chunked"), _CHUNKS[:50], _CHUNKS[50:]),
        b"/a/a/a",
    ),
    "expect": Case(
        "kb", (_head("POST /a", "Expect: 100-continue", "Content-Length: 300"), _BODY), b"/a/a/a"
    ),
    "judged body": Case(
        "qdrant",
        (_head("POST /collections/open/points/query", _JSON, "Content-Length: 15"),
         _SEARCH[:5], _SEARCH[5:]),
        b"/query",
    ),
    "look-up": Case(
        "qdrant",
        (_head("POST /collections/alias/points/query", _JSON, "Content-Length: 15") + _SEARCH,),
        b"/query",
    ),
    "look-up, new": Case(
        "qdrant",
        (_head("POST /collections/alias/points/query", _JSON, "Content-Length: 15") + _SEARCH,),
        b"/query",
        new=True,
    ),
    "listing": Case("qdrant", (get("/collections"),), b"}"),
    "refused body": Case(
        "kb", (_head("POST /secret", "Content-Length: 300"), _BODY[:9], _BODY[9:]), b"}"
    ),
    "events": Case("kb", (get("/events"),), b"data: 2\n\n"),
    "websocket": Case("kb", (_ASK_SOCKET,), b"goodbye"),
    "absolute": Case(FORWARD_PROXY, (get("http://kb.test/a"),), b"/a/a/a"),
    "tunnel": Case(FORWARD_PROXY, (_TUNNEL, get("/a")), b"/a/a/a"),
    "websocket in a tunnel": Case(FORWARD_PROXY, (_TUNNEL, _ASK_SOCKET), b"goodbye"),
    "refused tunnel": Case(FORWARD_PROXY, (_head("CONNECT a:1", host="a:1"),), b"}"),
    "unread tunnel": Case(
        FORWARD_PROXY,
        (_head("CONNECT tcp.test:5432", host="tcp.test:5432"), b"\x16hi"),
        b"\x16hi",
    ),
    "redirected": Case(TRANSPARENT, (get("/a"),), b"/a/a/a"),
    "redirected websocket": Case(TRANSPARENT, (_ASK_SOCKET,), b"goodbye"),
    "tcp": Case("tcp", (b"one", b"two"), b"onetwo"),
}  # fmt: skip


@pytest.mark.parametrize("how", ["is lost", "half-closes"])
@pytest.mark.parametrize("name", CASES)
async def test_nothing_is_left_when_a_client_leaves_at_any_point(
    tmp_path: Path, name: str, how: str
) -> None:
    case = CASES[name]
    async with every_port(tmp_path, QUICK, connections=4) as ports:
        ports.upstream.script = in_parts
        answered, at = b"", 0
        while not await _leaving(ports, case, how, at):
            at += 1
            assert at < MOST, "it never comes through"
            answered += await _still_serves(ports, at)
        await ports.nothing_left()
        await _check_log(ports, case, answered)


async def _leaving(ports: EveryPort, case: Case, how: str, at: int) -> bool:
    """Whether the request came through before its client left at this point."""
    if case.new:
        await waiting.until_async("no connection is idle", lambda: not ports.upstream.open)
    agent = Agent(ports.proxy.listeners[case.port].protocol_factory())
    leave = agent.abort if how == "is lost" else agent.end
    with Suspensions(at, leave) as suspensions:
        await agent.send(case.segments, 3)
        received = await agent.received_once(case.whole)
    whole = case.whole(received) and not suspensions.reached
    agent.close()
    await waiting.until_async("it has gone", lambda: not ports.proxy.agent_connections)
    await waiting.until_async("its body is let go", lambda: not ports.bodies.held)
    return whole


async def _still_serves(ports: EveryPort, at: int) -> bytes:
    """What a client gets that asks after it. Of four connections, none may be missing for long, and
    none may carry what another client left behind."""
    agent = Agent(ports.proxy.listeners["kb"].protocol_factory())
    await agent.send([get(f"/after-{at}")])
    expected = f"/after-{at}".encode() * 3
    received = await agent.received_once(lambda data: data.endswith(expected))
    agent.close()
    assert answers(received) == [(200, expected)]
    return received


async def _check_log(ports: EveryPort, case: Case, answered: bytes) -> None:
    """No answer without its record, and nothing at the data source without one. What was allowed
    ended in one way, and is counted once."""
    await ports.proxy.close(1)  # hands over how the last ones ended
    outcomes = await ports.outcomes()
    told = {each.decode() for each in _EVENT.findall(answered)}
    assert told <= set(outcomes)
    allowed = [ended for decision, ended in outcomes.values() if decision == "ALLOW"]
    sent = [each for each in ports.upstream.begun if each.target not in LOOKUPS]
    assert len(sent) <= len(allowed)
    # A tunnel that is connected, but can't be granted any more, has failed; nothing else has.
    granted = case.segments[0].startswith(b"CONNECT tcp")
    assert granted or "failed" not in {each for ended in allowed for each in ended}
    # Of a write, it is not recorded.
    writes = b"POST /a " in b"".join(case.segments)
    assert {len(ended) for ended in allowed} <= ({0, 1} if writes else {1})
    assert ports.counted("ALLOW") == len(allowed)


_EVENT = re.compile(rb"X-Sluice-Event-Id: ([0-9a-f-]{36})")
