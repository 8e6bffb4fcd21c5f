"""What a check by the Python guard costs its caller: `python -m tests.benchmarks --only guard`.

CPU microseconds of a call in the calling process, the least of several rounds, all ways in turn
within each round. The answers come from another process that only sends prepared bytes, so that
the rates don't matter. The floors: the same request by `httpx.Client`, and by a bare socket.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import httpx
import uvloop

sys.path.insert(0, str(Path(__file__).parents[2] / "deploy" / "sdk" / "python"))

from sluice_guard import Guard
from tests.benchmarks.measure import Figure

CALLS = 400
ROUNDS = 7
KEY = "slc_" + "x" * 49
TARGET = 150
DECISION = json.dumps(
    {
        "decision": "ALLOW",
        "policy_name": "support-reads",
        "reason": "policy `support-reads` allows role `support` to read `contracts` at `high`",
        "event_id": "01890a5d-ac96-774b-bcce-b302099a8057",
    }
).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"X-Sluice-Decision: ALLOW\r\nX-Sluice-Event-Id: 01890a5d-ac96-774b-bcce-b302099a8057\r\n\r\n%b"
) % (len(DECISION), DECISION)
BODY = json.dumps(
    {
        "agent_id": "agt",
        "agent_role": "support",
        "user_id": "agt",
        "source_id": "contracts",
        "sensitivity_level": "high",
        "source_type": "sdk",
    }
).encode()
HEADERS = {"X-API-Key": KEY, "Content-Type": "application/json"}


class Server(asyncio.Protocol):
    """Answers whatever arrives; each request arrives in one piece or ends with its body."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}"):
            self.transport.write(ANSWER)


def serve(listener: socket.socket) -> None:
    async def forever() -> None:
        server = await asyncio.get_running_loop().create_server(Server, sock=listener)
        await server.serve_forever()

    uvloop.run(forever())


def blocking(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least CPU microseconds of a call, by way."""
    taken: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, call in ways.items():
            began = time.process_time()
            for _ in range(CALLS):
                call()
            spent = (time.process_time() - began) / CALLS * 1e6
            taken[name] = min(taken.get(name, spent), spent)
    return taken


async def awaiting(ways: dict[str, Callable[[], Awaitable[object]]]) -> dict[str, float]:
    """`blocking`, for coroutines."""
    taken: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, call in ways.items():
            began = time.process_time()
            for _ in range(CALLS):
                await call()
            spent = (time.process_time() - began) / CALLS * 1e6
            taken[name] = min(taken.get(name, spent), spent)
    return taken


def sync_ways(port: int, guard: Guard) -> dict[str, Callable[[], object]]:
    url = f"http://127.0.0.1:{port}/v1/context/evaluate"
    client = httpx.Client(trust_env=False, timeout=2)
    bare = socket.create_connection(("127.0.0.1", port))
    request = httpx.Request("POST", url, content=BODY, headers=HEADERS)
    lines = b"".join(b"%b: %b\r\n" % each for each in request.headers.raw)
    raw = b"POST /v1/context/evaluate HTTP/1.1\r\n%b\r\n%b" % (lines, BODY)

    def exchange() -> None:
        bare.sendall(raw)
        bare.recv(65536)

    return {
        "bare socket": exchange,
        "httpx.Client.post": lambda: client.post(url, content=BODY, headers=HEADERS),
        "guard.check": lambda: guard.check("contracts", "high"),
        "a decorated function": guard.source("contracts", "high")(lambda: None),
    }


async def async_ways(port: int, guard: Guard) -> dict[str, float]:
    url = f"http://127.0.0.1:{port}/v1/context/evaluate"
    async with httpx.AsyncClient(trust_env=False, timeout=2) as client:
        found = await awaiting(
            {
                "httpx.AsyncClient.post": lambda: client.post(url, content=BODY, headers=HEADERS),
                "guard.acheck": lambda: guard.acheck("contracts", "high"),
            }
        )
    await guard.aclose()
    return found


def figures() -> Iterator[Figure]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
    server.start()
    try:
        guard = Guard(f"http://127.0.0.1:{port}", KEY, "agt", "support")
        yield from rows(blocking(sync_ways(port, guard)), "httpx.Client.post")
        for name, run in (("asyncio", asyncio.run), ("uvloop", uvloop.run)):
            guard = Guard(f"http://127.0.0.1:{port}", KEY, "agt", "support")
            found = run(async_ways(port, guard))
            yield from rows(found, "httpx.AsyncClient.post", f", {name}")
    finally:
        server.terminate()
        server.join()


def rows(found: dict[str, float], floor: str, suffix: str = "") -> Iterator[Figure]:
    for name, spent in found.items():
        target = f"< {TARGET} µs" if "guard" in name or "decorated" in name else ""
        value = f"{spent:.0f} µs of CPU; {floor} {found[floor]:.0f} µs"
        yield Figure(f"{name}{suffix}", value, spent / found[floor], target, spent < TARGET)
