"""A load generator that costs less than what it measures: raw keep-alive connections, closed loop.

    python -m tests.benchmarks.load HOST PORT CONNECTIONS SECONDS [BUNDLE EACH] < parts

The parts of the input are separated by zero bytes: the number of rules, the two texts of each rule
(`mixed.py`), and the requests, which are sent in turn.

With BUNDLE, a file of authorities, over TLS as the API server speaks to a webhook: the certificate
is verified. With EACH over 0, a connection is closed and opened anew after so many requests.

Prints one JSON line: answers, seconds, rate, p50, p99 and longest in milliseconds, statuses, how
many answers were wrong by the rules, and the last of these.
Bounded in connections and time; refuses any address but loopback.
"""

import asyncio
import ipaddress
import json
import ssl
import sys
import time
from collections import Counter
from itertools import cycle
from typing import cast

import uvloop

SERVER_NAME = "sluice-webhook.sluice-system.svc"
"""What the certificate must be for."""


class Client(asyncio.Protocol):
    """One connection: sends the next request as soon as the response is complete."""

    def __init__(self, run: "Run", each: int = 0) -> None:
        self._run = run
        self._left = each
        self.done = asyncio.get_running_loop().create_future()
        self._buffer = b""
        self._size = 0
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._send()

    def _send(self) -> None:
        request = next(self._run.requests)
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer = data = self._buffer + data if self._buffer else data
        if not self._size:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = data[:end].lower()
            at = head.find(b"content-length:")
            if at < 0:
                raise SystemExit(f"an answer without Content-Length: {head!r}")
            self._size = end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(data) >= self._size:
            self._buffer, self._size = b"", 0
            self._run.answered(data, time.perf_counter() - self._sent)
            self._left -= 1
            if self._left == 0:
                self.done.set_result(None)
                self._transport.close()
            elif not self._run.over:
                self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._run.over and not self.done.done():
            self._run.lost += 1
            self.done.set_result(None)


class Run:
    """What is sent in one run, and its results."""

    def __init__(self, parts: list[bytes]) -> None:
        end = 1 + 2 * int(parts[0])
        self.requests = cycle(parts[end:])
        self._rules = list(zip(parts[1:end:2], parts[2:end:2], strict=True))
        self.wrong = 0
        self.example = b""
        self.latencies: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.over = False
        self.lost = 0

    def answered(self, response: bytes, seconds: float) -> None:
        self.latencies.append(seconds)
        self.statuses[response[9:12].decode()] += 1
        for text, expected in self._rules:
            if text in response:
                if expected not in response or response[9:12] != b"200":
                    self.wrong += 1
                    self.example = response
                break


async def load(
    host: str,
    port: int,
    connections: int,
    seconds: float,
    parts: list[bytes],
    tls: ssl.SSLContext | None = None,
    each: int = 0,
) -> dict[str, object]:
    if not ipaddress.ip_address(host).is_loopback:
        raise SystemExit("load goes to loopback only")
    run = Run(parts)
    loop = asyncio.get_running_loop()
    name = SERVER_NAME if tls else None

    async def connect() -> asyncio.Transport:
        transport, client = await loop.create_connection(
            lambda: Client(run, each), host, port, ssl=tls, server_hostname=name
        )
        if each:
            client.done.add_done_callback(lambda _: again())
        return transport

    def again() -> None:
        if not run.over:
            task = asyncio.create_task(connect())
            reconnecting.add(task)
            task.add_done_callback(reconnecting.discard)

    reconnecting: set[asyncio.Task[asyncio.Transport]] = set()
    started = time.perf_counter()
    transports = [await connect() for _ in range(min(connections, 1024))]
    await asyncio.sleep(min(seconds, 600))
    run.over = True
    elapsed = time.perf_counter() - started
    await asyncio.gather(*reconnecting)
    for transport in transports:
        transport.close()
    latencies = sorted(run.latencies) or [0.0]
    return {
        "answers": len(run.latencies),
        "seconds": round(elapsed, 3),
        "rate": len(run.latencies) / elapsed,
        "p50": latencies[len(latencies) // 2] * 1000,
        "p99": latencies[len(latencies) * 99 // 100] * 1000,
        "longest": latencies[-1] * 1000,
        "statuses": run.statuses,
        "lost": run.lost,
        "wrong": run.wrong,
        "example": run.example.decode(errors="replace"),
    }


if __name__ == "__main__":
    address, at, many, long, *over_tls = sys.argv[1:]
    sent = sys.stdin.buffer.read().split(b"\0")
    context = ssl.create_default_context(cafile=over_tls[0]) if over_tls else None
    requests_each = int(over_tls[1]) if over_tls else 0
    result = uvloop.run(
        load(address, int(at), int(many), float(long), sent, context, requests_each)
    )
    print(json.dumps(result))
