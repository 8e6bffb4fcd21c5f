"""Fuzzes the HTTP/2 of a whole sidecar process, in front of a data source that breaks off, too.

    python -m tests.fuzz_http2 [SECONDS] [SEED]

Takes turns between connections of drawn and mutated frames, and heads of requests that are compared
with the opinion of the library `h2`. Prints what it did and found, and exits with 1 if the process
ended or logged an error, if a stream stayed unanswered, if `h2` refuses a head that reached the
data source, or if the process grew by more than 32 MiB between a tenth of the time and the end.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.exceptions import ProtocolError

from tests.sidecar.http.http2 import frames
from tests.sidecar.http.http2.frames import Frame, headers, update
from tests.sidecar.http.server.test_http2_mutations import Frames
from tests.support.fake_control_api import FakeControlApi, fake_control_api, policy
from tests.support.ports import free_port
from tests.support.scripted_source import DataSource, Seen, data_source
from tests.support.sidecar_process import SidecarProcess, sidecar_process

SECONDS = 60.0
GROWTH_KIB = 32 * 1024
PATIENCE = 20.0
"""The seconds within which each stream has to end."""
OPEN = frames.settings({frames.INITIAL_WINDOW: 1 << 30}) + update(0, 1 << 30)
"""Opens all windows."""
BROKEN = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"",
)

Pairs = list[tuple[bytes, bytes]]


@dataclass
class Found:
    """What was done and found, for people. `fatal` are the findings that fail the run."""

    counts: Counter[str] = field(default_factory=Counter)
    fatal: list[str] = field(default_factory=list)
    stricter: Counter[str] = field(default_factory=Counter)
    """What the sidecar refuses and `h2` does not, by the mutation."""

    def say(self) -> None:
        for name, count in sorted(self.counts.items()):
            print(f"{name:32} {count}")
        for name, count in sorted(self.stricter.items()):
            print(f"{'refused here, not by h2':32} {count} of {name}")
        for each in self.fatal[:20]:
            print(f"FOUND {each}")


class Agent:
    """A connection to the sidecar, and the frames that it got."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""
        self.got: list[Frame] = []
        self.over = False

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def ended(self) -> set[int]:
        """The streams that have ended."""
        kinds, found = (frames.DATA, frames.HEADERS), set()
        for each in self.got:
            if each.kind == frames.RST_STREAM or (each.kind in kinds and each.flags & 1):
                found.add(each.stream)
        return found

    async def read(self) -> None:
        """Reads once. Sets `over` at the end of the connection."""
        with suppress(ConnectionError):
            if new := await self._reader.read(1 << 18):
                self._rest += new
                for each in frames.read(self._rest):
                    self.got.append(each)
                    self._rest = self._rest[9 + len(each.payload) :]
                return
        self.over = True

    async def until_ended(self, streams: set[int], seconds: float = PATIENCE) -> set[int]:
        """Waits for streams, and returns those that have not ended, unless the connection has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (self.over or streams <= self.ended()):
                    await self.read()
        return set() if self.over else streams - self.ended()


class Fuzz:
    """A running sidecar, its data source, and what was found."""

    def __init__(self, sidecar: SidecarProcess, port: int, source: DataSource, seed: int) -> None:
        self.sidecar = sidecar
        self._port = port
        self._source = source
        self._chance = Random(seed)
        self.found = Found()

    @asynccontextmanager
    async def _open(self, first: bytes) -> AsyncIterator[Agent]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(first)
        self.found.counts["connections"] += 1
        try:
            yield Agent(reader, writer)
        finally:
            writer.transport.abort()

    async def connection(self) -> None:
        """Sends drawn frames, mutated on every second connection; then opens all windows, makes one
        more request, and expects an end of every stream whose request has ended."""
        chance = self._chance
        drawn, mutates, sent = Frames(chance), chance.random() < 0.5, b""
        async with self._open(frames.begin()) as agent:
            for _ in range(chance.randrange(1, 40)):
                piece = b"".join(drawn.draw() for _ in range(chance.randrange(1, 6)))
                if mutates and piece and chance.random() < 0.1:
                    at = chance.randrange(len(piece))
                    piece = piece[:at] + bytes((chance.randrange(256),)) + piece[at + 1 :]
                sent += piece
                agent.send(piece)
                if chance.random() < 0.2:
                    await asyncio.sleep(0.001)  # so that the next piece is a segment of its own
            last = 1_000_001
            agent.send(OPEN + headers(last))
            awaited = {last} if mutates else {last, *_whole(sent)}
            self.found.counts["requests"] += len(_whole(sent)) + 1
            left = await agent.until_ended(awaited, 0.5 if mutates else PATIENCE)
            if left and mutates:
                # A frame may be longer now than what was sent of it. This ends it, and is no frame.
                agent.send(bytes(65_536))
                left = await agent.until_ended(awaited, PATIENCE)
            if left:
                self.found.counts["unanswered streams"] += len(left)
                unanswered = Path(tempfile.gettempdir()) / f"unanswered-{time.time_ns()}"
                unanswered.write_bytes(sent)
                self.found.fatal.append(f"unanswered: {sorted(left)} after {unanswered}")
            self.found.counts["connections that were cut off"] += agent.over

    async def heads(self) -> None:
        """Sends drawn heads on one connection, and compares what became of them."""
        drawn = [_draw_head(self._chance) for _ in range(30)]
        async with self._open(frames.begin() + OPEN) as agent:
            for number, (name, head) in enumerate(drawn):
                stream, mark = 1 + 2 * number, f"{number}"
                self._source.seen.clear()
                head.append((b"x-mark", mark.encode()))
                agent.send(headers(stream, head))
                if await agent.until_ended({stream}):
                    self.found.fatal.append(f"unanswered head: {head}")
                if agent.over:
                    self.found.counts["heads that ended the connection"] += 1
                    break
                self.found.counts["heads"] += 1
                passed = any(mark in each.values("x-mark") for each in self._source.seen)
                good = _h2_accepts(head)
                if passed and not good:
                    self.found.fatal.append(f"`h2` refuses {name}: {head}")
                elif good and not passed:
                    self.found.stricter[name if " and " not in name else "several"] += 1

    async def run(self, seconds: float) -> Found:
        begin = time.monotonic()
        warm = 0
        while (now := time.monotonic() - begin) < seconds and len(self.found.fatal) < 20:
            if not warm and now > seconds / 10:
                warm = self.memory()
            await (self.heads() if self._chance.random() < 0.3 else self.connection())
            self._source.seen.clear()
            self._source.begun.clear()
        self.found.counts["KiB at a tenth"] = warm
        self.found.counts["KiB at the end"] = end = self.memory()
        if warm and end > warm + GROWTH_KIB:
            self.found.fatal.append(f"the process grew from {warm} to {end} KiB")
        return self.found

    def memory(self) -> int:
        """The memory of the sidecar's process, in KiB."""
        assert self.sidecar.process is not None
        if self.sidecar.process.returncode is not None:
            self.found.fatal.append("the process has ended")
            return 0
        status = Path(f"/proc/{self.sidecar.process.pid}/status").read_text()
        [line] = [each for each in status.splitlines() if each.startswith("VmRSS")]
        return int(line.split()[1])


def _whole(sent: bytes) -> set[int]:
    """The streams whose request was sent to its end, and was not reset."""
    kinds, whole, reset = (frames.DATA, frames.HEADERS), set(), set()
    for each in frames.read(sent):
        if each.kind in kinds and each.flags & 1:
            whole.add(each.stream)
        elif each.kind == frames.RST_STREAM:
            reset.add(each.stream)
    return whole - reset


def _h2_accepts(head: Pairs) -> bool:
    connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    try:
        events = connection.receive_data(
            frames.begin()[: -len(frames.settings())] + headers(1, head)
        )
    except ProtocolError:
        return False
    return any(isinstance(each, RequestReceived) for each in events)


_MORE: Pairs = [
    (b"connection", b"close"), (b"transfer-encoding", b"chunked"), (b"te", b"trailers"),
    (b"te", b"gzip"), (b"upgrade", b"websocket"), (b"keep-alive", b"1"), (b"host", b"kb.test"),
    (b"host", b"other.test"), (b"content-length", b"0"), (b"content-length", b"1"),
    (b"content-length", b"-1"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"", b"x"),
    (b":status", b"200"), (b":protocol", b"websocket"), (b":path", b"/b"), (b"X-Upper", b"1"),
    (b"x-space ", b"1"), (b"x-edge", b" 1 "), (b"x-tab", b"\t1"), (b"x-nul", b"1\0"),
    (b"x-line", b"1\r\nx: 2"), (b"x-lf", b"1\n"), (b"x:y", b"1"), (b"x-high", b"\xff"),
    (b"proxy-connection", b"close"), (b"expect", b"100-continue"), (b"x", b"1" * 9_000),
]  # fmt: skip
_VALUES = {
    b":method": (b"HEAD", b"OPTIONS", b"CONNECT", b"get", b"", b"G T"),
    b":scheme": (b"https", b"HTTP", b"", b"ws"),
    b":authority": (b"", b"KB.test", b"kb.test:80", b"user@kb.test", b"a b", b"kb.test/a"),
    b":path": (b"", b"*", b"a", b"/a#b", b"/a b", b"/\xc3\xa9", b"/a\r\nx: y", b"http://kb.test/a"),
}


def _draw_head(chance: Random) -> tuple[str, Pairs]:
    """Returns a head with up to two mutations, and their names."""
    head, names = list(frames.GET), []
    for _ in range(chance.randrange(3)):
        kind = chance.randrange(5)
        at = chance.randrange(len(head))
        name, value = head[at]
        if kind == 0:
            head.insert(chance.randrange(len(head) + 1), added := chance.choice(_MORE))
            names.append(f"{added[0].decode('latin-1')} added")
        elif kind == 1 and name in _VALUES:
            head[at] = (name, changed := chance.choice(_VALUES[name]))
            names.append(f"{name.decode()} {changed[:20]!r}")
        elif kind == 2:
            head.append(head.pop(at))
            names.append("order")
        elif kind == 3:
            del head[at]
            names.append(f"without {name.decode('latin-1')}")
            head = head or [(b":path", b"/a")]
        else:
            byte, where = bytes((chance.randrange(256),)), chance.randrange(max(1, len(value)))
            head[at] = (name, value[:where] + byte + value[where + 1 :])
            names.append(f"a byte of {name.decode('latin-1')}")
    return " and ".join(names) or "nothing", head


async def _answer(chance: Random, seen: Seen, writer: asyncio.StreamWriter) -> None:
    kind = chance.randrange(10)
    body = bytes(chance.choice((0, 10, 1_000, 70_000, 400_000)))
    if kind == 0:
        writer.write(chance.choice(BROKEN))
        writer.close()
    elif seen.line.startswith("HEAD "):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    elif kind < 5:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(chance.randrange(5)):
            writer.write(b"3\r\nabc\r\n")
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
    else:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def _errors(sidecar: SidecarProcess, found: list[str]) -> None:
    """Reads the log, so that it doesn't fill its pipe, and keeps the lines of errors."""
    assert sidecar.process is not None
    assert sidecar.process.stderr is not None
    async for line in sidecar.process.stderr:
        if b'"ERROR"' in line or b" ERROR " in line or b"Traceback" in line:
            found.append(f"logged: {line.decode('utf-8', 'replace').strip()}")


async def _forget(control: FakeControlApi) -> None:
    while True:
        await asyncio.sleep(1)
        control.records.clear()


async def fuzz(seconds: float, seed: int) -> Found:
    """Fuzzes for so many seconds, and returns what was found."""
    chance, port, errors = Random(seed), free_port(), list[str]()
    async with (
        data_source(lambda seen, writer: _answer(chance, seen, writer)) as source,
        fake_control_api() as control,
    ):
        kb = {
            "alias": "kb", "kind": "rest", "sensitivity": "low", "writes": "allow",
            "upstream": f"http://127.0.0.1:{source.port}", "listen": f"127.0.0.1:{port}",
            "hosts": ["kb.test"],
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            async with sidecar_process(Path(folder), control, sources=[kb]) as sidecar:
                control.create_tenant(policy(allowed_sources=("*",), denied_sources=()))
                await sidecar.start()
                beside = [
                    asyncio.create_task(_errors(sidecar, errors)),
                    asyncio.create_task(_forget(control)),
                ]
                try:
                    made = Fuzz(sidecar, port, source, seed)
                    found = await made.run(seconds)
                finally:
                    for each in beside:
                        each.cancel()
    found.fatal += errors
    found.counts["crashes and logged errors"] = len(errors)
    return found


def main() -> int:
    arguments = sys.argv[1:]
    seconds = float(arguments[0]) if arguments else SECONDS
    seed = int(arguments[1]) if len(arguments) > 1 else time.time_ns() % (1 << 32)
    print(f"seed {seed}")
    found = asyncio.run(fuzz(seconds, seed))
    found.say()
    return 1 if found.fatal else 0


if __name__ == "__main__":
    sys.exit(main())
