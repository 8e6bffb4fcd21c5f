"""How long one request keeps the sidecar's event loop from everything else.

    python -m tests.benchmarks.blocking [--quick] [--only NAME]

For each case of `blocking_cases.py` the listener runs in this process, on uvloop as in production,
while a probe sleeps for a millisecond over and over on the same loop. The agent and the data
source are other processes. Two figures for the longest time between two turns of the loop: the CPU
that the process spent in it, which is what a quiet machine would see and what is held against the
target, and by the clock, which on a busy machine is longer by what other processes took. Each is
the median over the rounds of the longest in a round.
"""

import argparse
import asyncio
import contextlib
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from sidecar.platform.malloc import freeze_startup_objects
from sidecar.settings.model import Aws
from tests.benchmarks.blocking_cases import CASES, Case
from tests.benchmarks.measure import Figure
from tests.sidecar.protocols.aws import REGION, credentials_file
from tests.support.proxy import listening, policy, sidecar, source

MOST_MS = 100.0
TICK = 0.001


class Probe:
    """The longest time between two turns of the loop, in milliseconds: `cpu` of all threads of the
    process, of which one at a time runs Python, and `wall`."""

    cpu = wall = 0.0

    async def run(self) -> None:
        while True:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK)
            self.wall = max(self.wall, (time.perf_counter() - wall - TICK) * 1000)
            self.cpu = max(self.cpu, (time.process_time() - cpu) * 1000)


@contextlib.asynccontextmanager
async def probing() -> AsyncIterator[Probe]:
    probe = Probe()
    task = asyncio.get_running_loop().create_task(probe.run())
    try:
        yield probe
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _serve(answers: dict[str, bytes], told: Connection) -> None:
    """The data source. Responds by the longest path that the target begins with."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.split(":")[1]))
                target = head.split(" ")[1]
                fitting = [path for path in answers if target.startswith(path)]
                body = answers[max(fitting, key=len)] if fitting else b"{}"
                media = "text/event-stream" if body.startswith(b"data: ") else "application/json"
                if body.startswith(b"<"):
                    media = "application/xml"
                answer = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n"
                writer.write(f"{answer}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _source(answers: dict[str, bytes], told: Connection) -> None:
    asyncio.run(_serve(answers, told))


def _asked(port: int, data: bytes) -> bytes:
    """The agent: sends a request and reads the whole response. Returns the status line."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as made:
        made.sendall(data)
        answer = bytearray()
        while part := made.recv(1 << 20):
            answer += part
    return bytes(answer[: answer.find(b"\r\n")])


def _request(case: Case) -> bytes:
    lines = [f"{case.method} {case.target} HTTP/1.1", "Host: kb", "Connection: close", *case.fields]
    if case.body:
        media = "application/x-ndjson" if case.target == "/_msearch" else "application/json"
        lines += [f"Content-Length: {len(case.body)}", f"Content-Type: {media}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + case.body


async def _measured(case: Case, port: int, agent: ProcessPoolExecutor, rounds: int) -> list[Probe]:
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        configured = source(port, case.kind, writes="allow")
        if case.marked:
            configured = replace(configured, sensitivity_field="level", sensitivity="low")
        if case.kind in ("s3", "bedrock"):
            aws = Aws(region=REGION, credentials_file=credentials_file(root))
            configured = replace(configured, aws=aws)
        found = []
        async with (
            sidecar(root, policy(max_sensitivity="high")) as made,
            listening(made, configured) as listener,
        ):
            freeze_startup_objects()  # as `sidecar.serve` does once all is open
            for number in range(rounds + 1):
                async with probing() as probe:
                    status = await loop.run_in_executor(agent, _asked, listener, _request(case))
                if not status.startswith(b"HTTP/1.1 200 "):
                    raise SystemExit(f"{case.name}: not accepted: {status!r}")
                # The first one loads what is loaded late, and makes connections.
                if number:
                    found.append(probe)
    return found


async def _idle() -> Probe:
    async with probing() as probe:
        await asyncio.sleep(1)
    return probe


def _run(case: Case, agent: ProcessPoolExecutor, rounds: int) -> list[Probe]:
    spawning = get_context("spawn")
    ours, theirs = spawning.Pipe()
    upstream = spawning.Process(target=_source, args=(case.answers, theirs), daemon=True)
    upstream.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measured(case, ours.recv(), agent, rounds))
    finally:
        upstream.terminate()
        upstream.join()


def figures(quick: bool, only: str = "") -> Iterator[Figure]:
    rounds = 1 if quick else 5
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        idle = runner.run(_idle())
    yield Figure(
        "loop blocked, without a request",
        f"{idle.cpu:.1f} ms CPU, {idle.wall:.0f} ms by the clock",
        None,
        "",
        True,
    )
    with ProcessPoolExecutor(1, get_context("spawn")) as agent:
        for case in CASES:
            if only not in case.name:
                continue
            found = _run(case, agent, rounds)
            longest = statistics.median(each.cpu for each in found)
            wall = statistics.median(each.wall for each in found)
            value = f"{longest:.1f} ms CPU, {wall:.0f} ms by the clock"
            yield Figure(
                f"loop blocked, {case.name}", value, longest / MOST_MS, "<= 100 ms",
                longest <= MOST_MS,
            )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.blocking")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    arguments = parser.parse_args()
    for figure in figures(arguments.quick, arguments.only):
        print(figure.row(), flush=True)
