"""Memory of a sidecar: over a million decisions; of its reverse proxy with idle connections, a long
stream in either direction, and readers that don't read.

    python -m tests.benchmarks.memory [--quick]

Measures the resident memory of the sidecar's process. Everything stays on loopback; the stream
repeats one byte, generated as it is sent.
"""

import argparse
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import (
    EVALUATE,
    LOAD,
    MIB,
    REST,
    SERVER,
    Figure,
    bare,
    directory,
    load,
    request,
)
from tests.support.ports import free_port
from tests.support.stack import Service, Stack, call, running_stack

KIB, GIB = 2**10, 2**30
STREAMS = 4
SLOW = 256


@contextmanager
def sidecar(made: Path, upstream: int, **source: Any) -> Iterator[tuple[int, Stack]]:
    """The port of a reverse proxy in front of `upstream`, and its stack."""
    port = free_port()
    whole: dict[str, Any] = {
        "alias": "files",
        "kind": "rest",
        "upstream": f"http://127.0.0.1:{upstream}",
        "listen": f"127.0.0.1:{port}",
        "sensitivity": "low",
        **source,
    }
    made.mkdir()
    with running_stack(made, control_cores=REST, sidecar_cores=SERVER, sources=[whole]) as stack:
        yield port, stack
        assert stack.verify()["valid"]


def decisions(many: int) -> Figure:
    """Resident memory of a sidecar while it makes `many` decisions."""
    samples: list[int] = []
    with (
        directory() as made,
        running_stack(made, control_cores=REST, sidecar_cores=SERVER) as stack,
    ):
        sent = request("POST", EVALUATE, stack.ask(), stack.agent_key)
        done, end = 0, time.monotonic() + 900
        while done < many and time.monotonic() < end:
            done += load(stack.sidecar.port, sent, 64, 10)["answers"]
            samples.append(stack.sidecar.resident())
        assert call(stack.sidecar.port, "GET", "/health/ready")[0] == 200
    first, last, most = (size / MIB for size in (samples[0], samples[-1], max(samples)))
    value = f"{most:.1f} MiB at most; {first:.1f} then {last:.1f} after {done:,}"
    reached = most <= 60 and last / first < 1.1
    return Figure("sidecar, resident memory", value, last / first, "<= 60 MiB", reached)


class Watched:
    """The highest resident memory of a process while work is done."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.before = service.resident()
        self.most = self.before

    def during(self, work: Callable[[], None]) -> int:
        """Do the work. Returns the highest memory, in bytes."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                self.most = max(self.most, self._service.resident())

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            try:
                work()
            finally:
                done.set()
            watching.result()
        return self.most


def opened(port: int, receive: int | None = None) -> socket.socket:
    made = socket.socket()
    if receive is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    made.settimeout(120)
    made.connect(("127.0.0.1", port))
    return made


def head_of(made: socket.socket) -> bytes:
    """The head of a response, and the part of the body that arrived with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = made.recv(65536)
        if not part:
            raise SystemExit(f"the connection ended after {data!r}")
        data += part
    if not data.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"not the answer that was asked for: {data[:300]!r}")
    return data


def swallow(made: socket.socket, size: int) -> None:
    """Read a response of `size` bytes."""
    left = size - len(head_of(made).partition(b"\r\n\r\n")[2])
    buffer = bytearray(MIB)
    while left > 0:
        got = made.recv_into(buffer, min(left, MIB))
        if not got:
            raise SystemExit(f"the answer ended {left} bytes early")
        left -= got


def downloads(port: int, each: int, times: int) -> None:
    """Read `times` responses of `each` bytes over four connections at once."""

    def one(_number: int) -> None:
        with opened(port) as made:
            for _ in range(times // STREAMS):
                made.sendall(request("GET", "/long"))
                swallow(made, each)

    with ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(one, range(STREAMS)))


def upload(port: int, size: int) -> None:
    head = f"POST /long HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()
    block = b"x" * MIB
    with opened(port) as made:
        made.sendall(head)
        for _ in range(size // MIB):
            made.sendall(block)
        head_of(made)


def idle(port: int, service: Service, many: int) -> Figure:
    """Connections that have made one request and stay open, as in an agent's pool."""
    sent, waiting = request("GET", "/idle"), []
    try:

        def ask(times: int) -> int:
            for _ in range(times):
                made = opened(port)
                waiting.append(made)
                made.sendall(sent)
                head_of(made)
            time.sleep(1)
            return service.resident()

        # What the first requests cost once is not counted.
        before = ask(500)
        each = (ask(many) - before) / many
    finally:
        for made in waiting:
            made.close()
    value = f"{each / KIB:.1f} KiB each, of {many:,}"
    return Figure("proxy, idle connections", value, each / KIB / 40, "<= 40 KiB", each <= 40 * KIB)


def filled(service: Service) -> int:
    """Resident memory once it has stayed within one percent for a second, or after 30 s."""
    last = 0
    for _ in range(30):
        found = service.resident()
        if found <= last * 1.01:
            return found
        last = found
        time.sleep(1)
    return last


def slow(port: int, service: Service, each: int) -> Iterator[Figure]:
    """Readers that request more than any buffer holds and read nothing, until ten seconds after
    nothing changes any more."""
    readers = []
    try:
        before = service.resident()
        for _ in range(SLOW):
            made = opened(port, receive=4096)
            made.sendall(request("GET", "/long"))
            readers.append(made)
        early = filled(service)
        time.sleep(10)
        late = service.resident()
    finally:
        for made in readers:
            made.close()
    held = (late - before) / SLOW
    value = f"{held / KIB:.0f} KiB each, of {SLOW}, {each // MIB} MiB asked for"
    # Two reads of uvloop's are the most held of an answer, and a connection takes its own 40.
    yield Figure(
        "proxy, readers that do not read", value, held / KIB / 552, "<= 552 KiB", held <= 552 * KIB
    )
    value = f"{early / MIB:.1f} MiB once full, {late / MIB:.1f} after 10 s more"
    ratio = late / early
    yield Figure("the same, growth", value, ratio, "<= 1.02", ratio <= 1.02)


def figures(quick: bool) -> Iterator[Figure]:
    many, size = (500, GIB // 4) if quick else (5000, 10 * GIB)
    each = size // 40
    yield decisions(50_000 if quick else 1_000_000)
    # Both ends of every connection, in three processes that inherit this.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        made = stack.enter_context(directory())
        plain = stack.enter_context(bare(made, "upstream", "2048", LOAD))
        port, ours = stack.enter_context(sidecar(made / "idle", plain.port))
        yield idle(port, ours.sidecar, many)
    with ExitStack() as stack:
        made = stack.enter_context(directory())
        flood = stack.enter_context(bare(made, "flood", str(each), REST))
        port, ours = stack.enter_context(sidecar(made / "long", flood.port, writes="allow"))
        downloads(port, each, STREAMS)
        upload(port, 256 * MIB)
        for name, work in (
            (f"proxy, {size / GIB:g} GiB of answers", lambda: downloads(port, each, 40)),
            (f"proxy, {size / GIB:g} GiB of uploads", lambda: upload(port, size)),
        ):
            started, watched = time.monotonic(), Watched(ours.sidecar)
            most = watched.during(work)
            rate = size / MIB / (time.monotonic() - started)
            value = f"{watched.before / MIB:.1f} MiB, {most / MIB:.1f} at most; {rate:,.0f} MiB/s"
            ratio = most / watched.before
            yield Figure(name, value, ratio, "<= 1.1, flat", ratio <= 1.1)
        yield from slow(port, ours.sidecar, each)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.memory")
    parser.add_argument("--quick", action="store_true")
    for figure in figures(parser.parse_args().quick):
        print(figure.row(), flush=True)
