"""Whatever bytes an agent sends, in whatever segments: the decision, what the data source gets and
what the agent gets are the same over an idle connection to it, where nothing has to be waited for,
and over a new one."""

import asyncio
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from policies.trail.record import Record
from sidecar.settings.model import RestRule
from tests.sidecar.proxy.in_memory_transport import InMemory
from tests.sidecar.proxy.mutated_requests import SOUND, Sent, sendings
from tests.support.properties import examples
from tests.support.proxy import policy, sidecar, source
from tests.support.scripted_source import DataSource, Script, Seen, data_source

_ASKED_BY_ITSELF = "GET /aliases "


def _plain(seen: Seen) -> bytes:
    body = seen.head + seen.body
    fields = b"X-Up: 1\r\nX-Sluice-Decision: forged\r\nServer: up\r\nContent-Length: %d\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\n" + fields % len(body) + (b"" if _is_head(seen) else body)


def _chunked(seen: Seen) -> bytes:
    head = b"HTTP/1.1 203 Chunks\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + (b"" if _is_head(seen) else b"2\r\nok\r\n0\r\n\r\n")


def _is_head(seen: Seen) -> bool:
    return seen.line.startswith("HEAD ")


ANSWERS: dict[str, Callable[[Seen], bytes]] = {
    "plain": _plain,
    "chunked": _chunked,
    "none": lambda _: b"HTTP/1.1 204 No Content\r\n\r\n",
    "error": lambda seen: _plain(seen).replace(b"200 OK", b"404 Not Found"),
    "lenient": lambda seen: _plain(seen).replace(b"X-Up: 1\r\n", b"X-Up:1 \r\nX-Up:  2\r\n"),
    "last": lambda seen: _plain(seen).replace(b"X-Up: 1", b"Connection: close"),
    "hop": lambda seen: _plain(seen).replace(b"X-Up: 1", b"Connection: x-b\r\nX-B: 2"),
}


class Way:
    """A listener with its own data source, with or without an idle connection to it."""

    def __init__(self, kind: str, *, idle: bool) -> None:
        self.kind, self.idle = kind, idle
        self.upstream: DataSource
        self.answers = "plain"
        self.records: list[Record] = []

    async def open(self, stack: AsyncExitStack, folder: Path) -> None:
        folder.mkdir()
        self.upstream = await stack.enter_async_context(data_source(self._script()))
        reader = policy(denied_sources=("*secret*", "*/shut"))
        made = await stack.enter_async_context(sidecar(folder, reader))
        put = made.spool.put_together

        def heard(records: Sequence[Record], **more: Any) -> Any:
            self.records += records
            return put(records, **more)

        made.spool.put_together = heard  # type: ignore[method-assign]
        asks = RestRule("POST", "/ask/**", "retrieve", None, None)
        configured = source(
            self.upstream.port, self.kind, routes=(asks,) if self.kind == "rest" else ()
        )
        self.proxy = made.proxy((configured,))
        await self.proxy.start()
        stack.push_async_callback(self.proxy.close, 1)

    def _script(self) -> Script:
        async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
            if seen.line.startswith(_ASKED_BY_ITSELF):
                told = b'{"result":{"aliases":[{"alias_name":"alias","collection_name":"shut"}]}}'
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
                return
            data = ANSWERS[self.answers](seen)
            writer.write(data)
            if b"Connection: close" in data:
                writer.close()

        return script

    async def came_to(self, sent: Sent) -> "CameTo":
        """What a connection that sends this comes to."""
        pool = self.proxy.endpoints[0].upstream.pool
        if self.idle:
            pool.release(pool.take() or await pool.connect())
        else:
            while idle := pool.take():
                pool.discard(idle)
        self.records.clear()
        self.upstream.seen.clear()
        answered = await InMemory().talk(self.proxy.listeners["kb"], sent.segments, sent.turns)
        seen = [
            (each.head.replace(b":%d" % self.upstream.port, b":port"), each.body)
            for each in self.upstream.seen
            if not each.line.startswith(_ASKED_BY_ITSELF)
        ]
        told = _EVENT.sub(b"event", answered.replace(b":%d" % self.upstream.port, b":port"))
        told = _LENGTH.sub(b"Content-Length: n", told)
        told = _PROBES.sub(b"", _CLOSING.sub(b"", told))
        decisions = [_decision(each) for each in self.records if each.kind == "decision"]
        return CameTo(told, seen, decisions)


class CameTo(NamedTuple):
    answered: bytes
    seen: list[tuple[bytes, bytes]]
    decisions: list[Any]


_EVENT = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}")
# The data source's answer names its own port, which may have fewer digits.
_LENGTH = re.compile(rb"(?i)Content-Length: \d+")
# Whether the agent's end has arrived when the head of the answer is written depends on how long a
# look-up took.
_CLOSING = re.compile(rb"(?i)Connection: close\r\n")
# An agent that has ended its sending side is asked once whether it still reads, if a look-up lasts.
_PROBES = re.compile(rb"HTTP/1\.1 100 Continue\r\n\r\n")


def _decision(record: Record) -> Any:
    told = orjson.loads(record.pub)
    opened = orjson.loads(record.openings)
    return told["request"], told["response"], {name: value for name, (_, value) in opened.items()}


@pytest.fixture(scope="module", params=sorted(SOUND))
def both(request: pytest.FixtureRequest) -> Iterator[tuple[asyncio.Runner, Way, Way]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stack = AsyncExitStack()
        idle, new = Way(request.param, idle=True), Way(request.param, idle=False)
        runner.run(idle.open(stack, Path(folder, "idle")))
        runner.run(new.open(stack, Path(folder, "new")))
        yield runner, idle, new
        runner.run(stack.aclose())


@given(data=st.data())
@examples(300)
def test_idle_and_new_connections_give_the_same_result(
    both: tuple[asyncio.Runner, Way, Way], data: st.DataObject
) -> None:
    runner, idle, new = both
    sent = data.draw(sendings(idle.kind))
    idle.answers = new.answers = data.draw(st.sampled_from(sorted(ANSWERS)))

    async def run() -> tuple[CameTo, CameTo]:
        return await idle.came_to(sent), await new.came_to(sent)

    one, other = runner.run(run())
    if sent.ends_whole:
        assert one == other
    else:
        # Hanging up in the middle of a message takes what is under way with it, sooner or
        # later; how far it came by then does not depend on the way.
        for found, more in ((one, other), (other, one)):
            count = min(len(found.decisions), len(more.decisions))
            assert found.decisions[:count] == more.decisions[:count]
            count = min(len(found.seen), len(more.seen))
            assert found.seen[:count] == more.seen[:count]
