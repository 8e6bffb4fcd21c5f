"""The console's speed on a long log: `python -m tests.benchmarks.console [EVENTS [POLICIES]]`.

One control API on SQLite with a million events and 10,000 policies (`console_world.py`). Every page
of the table is asked for by itself, and then evaluations go on beside 200 open live tails, in turns
with none: half of the tails show everything, the others one agent each. Times are those of the
client, on another core: the network's and the parsing of HTTP included. CPU is the service's, which
other work on the machine changes little. The seeding takes a few minutes.
"""

import http.client
import json
import selectors
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from tests.benchmarks.console_world import addresses, seeded
from tests.benchmarks.measure import EVALUATE, SERVER, Figure, cpu_seconds, directory, load, request
from tests.control_api.console.reader import Visitor
from tests.support.company_week import CompanyWeek
from tests.support.control_api import SUPERADMIN, ControlApi
from tests.support.stack import Service, Stack
from tests.support.waiting import AWAY, until

EVENTS, POLICIES = 1_000_000, 10_000
MOST_MS = 100
ASKED, WARM_UP = 20, 2
TAILS, OF_A_KEY = 200, 10
LEAST = 0.9
ROUNDS, SECONDS, CONNECTIONS = 5, 3.0, 16


class Console:
    """A visitor's session at the running service."""

    def __init__(self, stack: Stack, key: str | None) -> None:
        self._port = stack.control.port
        visitor = Visitor(cast("ControlApi", _At(stack)))
        self.host = visitor.host
        if key is not None:
            visitor.sign_in(key)
        self.cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())

    def milliseconds(self, address: str) -> list[float]:
        """How long each request for this page takes, after a few more."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        taken = []
        for _ in range(WARM_UP + ASKED):
            started = time.perf_counter()
            connection.request("GET", address, headers={"Host": self.host, "Cookie": self.cookie})
            answer = connection.getresponse()
            answer.read()
            taken.append((time.perf_counter() - started) * 1000)
            assert answer.status < 400, (address, answer.status)
        connection.close()
        return taken[WARM_UP:]


class _At:
    """Where a visitor finds the service."""

    def __init__(self, stack: Stack) -> None:
        self.port = stack.control.port
        name = (stack.directory / "data" / "console-host").read_text().strip()
        self.console = f"http://{name}:{self.port}"


def pages(stack: Stack, world: CompanyWeek) -> Iterator[Figure]:
    visitors = {
        "admin": Console(stack, stack.admin_key),
        "superadmin": Console(stack, SUPERADMIN),
        "anyone": Console(stack, None),
    }
    # The verification of a long log takes half of a core for a minute after the start.
    path = "/v1/audit/verification"
    until(
        "the log is verified",
        lambda: not stack.admin("GET", path)["running"],
        despite=AWAY,
        seconds=600,
    )
    for address, who in addresses(world):
        before = cpu_seconds(stack.control)
        try:
            taken = sorted(visitors[who].milliseconds(address))
        except AssertionError as error:
            yield Figure(address[:44], str(error), None, "", reached=False)
            continue
        used = (cpu_seconds(stack.control) - before) / (WARM_UP + ASKED) * 1000
        median, late, worst = statistics.median(taken), taken[int(len(taken) * 0.95)], taken[-1]
        value = f"CPU {used:.1f}, median {median:.1f}, p95 {late:.1f}, worst {worst:.1f} ms"
        yield Figure(address[:44], value, None, f"p95 < {MOST_MS} ms", late < MOST_MS)


@contextmanager
def tails(port: int, host: str, cookies: list[str]) -> Iterator[list[int]]:
    """Open tails that read all they are sent; what is given counts their bytes."""
    connections = selectors.DefaultSelector()
    for number in range(TAILS):
        query = "" if number % 2 else f"?agent_id=agent-{number // 2 % 50}"
        opened_to = socket.create_connection(("127.0.0.1", port))
        head = f"GET /console/decisions/live{query} HTTP/1.1\r\nHost: {host}\r\n"
        cookie = cookies[number // OF_A_KEY]
        opened_to.sendall(f"{head}Accept: text/event-stream\r\nCookie: {cookie}\r\n\r\n".encode())
        first = opened_to.recv(65536)
        assert first.startswith(b"HTTP/1.1 200"), first
        connections.register(opened_to, selectors.EVENT_READ)
    done, read = threading.Event(), [0]

    def follow() -> None:
        while not done.is_set():
            for key, _ in connections.select(0.2):
                read[0] += len(cast("socket.socket", key.fileobj).recv(1 << 20))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield read
    finally:
        done.set()
        thread.join()
        for key in list(connections.get_map().values()):
            cast("socket.socket", key.fileobj).close()


def beside_tails(stack: Stack) -> Figure:
    """Evaluations a CPU second of the service with and without the tails, in turns."""
    keys = [new_key(stack) for _ in range(TAILS // OF_A_KEY)]
    consoles = [Console(stack, key) for key in keys]
    host, cookies = consoles[0].host, [each.cookie for each in consoles]
    asked = {
        "agent_role": "support_assistant",
        "user_id": "ann",
        "source_id": "handbook",
        "sensitivity_level": "low",
    }
    sent = request("POST", EVALUATE, asked, stack.admin_key)
    rate(stack.control, sent)
    pairs, received = [], 0
    for _ in range(ROUNDS):
        alone = rate(stack.control, sent)
        with tails(stack.control.port, host, cookies) as read:
            beside = rate(stack.control, sent)
            received += read[0]
        time.sleep(6)  # the service notices within five seconds that they are gone
        pairs.append((beside, alone))
    ratio = statistics.median(beside[0] / alone[0] for beside, alone in pairs)
    by_time = statistics.median(beside[1] / alone[1] for beside, alone in pairs)
    beside, alone = (
        statistics.median(each[0] for each in side) for side in zip(*pairs, strict=True)
    )
    value = (
        f"{beside:,.0f} against {alone:,.0f} a CPU second (by time {by_time:.2f}; "
        f"{received / TAILS / ROUNDS / SECONDS / 1024:.1f} KiB/s each)"
    )
    return Figure(f"evaluate beside {TAILS} tails", value, ratio, f">= {LEAST}", ratio >= LEAST)


def rate(service: Service, sent: bytes) -> tuple[float, float]:
    """Evaluations by CPU second of the service, and by second."""
    before = cpu_seconds(service)
    done = load(service.port, sent, CONNECTIONS, SECONDS)
    used = cpu_seconds(service) - before
    return done["rate"] * SECONDS / used, done["rate"]


def new_key(stack: Stack) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", stack.control.port, timeout=30)
    headers = {"X-API-Key": stack.admin_key, "Content-Type": "application/json"}
    connection.request("POST", "/v1/keys", '{"name": "tails", "scope": "read"}', headers)
    made = json.loads(connection.getresponse().read())
    connection.close()
    return str(made["key"])


def main() -> None:
    events, number = (*map(int, sys.argv[1:]), *(EVENTS, POLICIES)[len(sys.argv) - 1 :])
    with directory() as folder:
        started = time.monotonic()
        stack, world = seeded(folder, events, number, SERVER)
        seconds = time.monotonic() - started
        print(f"{events:,} events and {number:,} policies in {seconds:.0f} s", flush=True)
        try:
            for figure in pages(stack, world):
                print(figure.row(), flush=True)
            print(beside_tails(stack).row(), flush=True)
        finally:
            stack.control.stop()


if __name__ == "__main__":
    main()
