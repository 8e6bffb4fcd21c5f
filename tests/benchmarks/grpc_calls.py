"""Calls of gRPC through the sidecar: `python -m tests.benchmarks.grpc_calls [SECONDS [ROUNDS]]`.

The call is a search of `qdrant-client`, judged by its message. One core has the proxy that is
measured; the other has the load (h2load), the data source (nghttpd, which answers 2 KiB and
trailers) and the control API. In turn with ours, on the same core: nghttpx, which decides nothing
and is the floor; and Envoy that asks a gRPC server which always says yes and records nothing.

Shown are calls a second and the CPU time of a call, of all processes that a contender consists of.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from qdrant_client import grpc as messages

from sidecar.http.grpc.framing import frame
from tests import servers
from tests.benchmarks.grpc_door import yes_server
from tests.benchmarks.measure import CORES, LOAD, SERVER, Figure, directory
from tests.benchmarks.turns import held, median, ratio, rounds_of, with_cpu
from tests.benchmarks.two_cores import shipped
from tests.sidecar.doors.grpc.envoy import configuration, speaks_http2
from tests.support.ports import free_port
from tests.support.stack import POLICIES, Service, Stack, listens
from tests.support.waiting import until

SECONDS, ROUNDS = 4, 3
ANSWER = 2048
METHOD = "/qdrant.Points/Search"
PROGRAMS = ("envoy", "h2load", "nghttpd", "nghttpx")


class Shape(NamedTuple):
    """A load: that many connections with that many calls at once on each."""

    connections: int
    streams: int


SHAPES = (Shape(1, 1), Shape(4, 16), Shape(16, 4))
TARGETS = {"floor": 0.5, "yes": 1.5}
"""The least share of each contender's rate, at 4 connections with 16 streams."""


def call() -> bytes:
    """Return the body of a search, in its frame."""
    search = messages.SearchPoints(
        collection_name="docs", vector=[0.25] * 384, limit=10,
        with_payload=messages.WithPayloadSelector(enable=True),
    )  # fmt: skip
    encoded: bytes = search.SerializeToString()
    return frame(encoded)


@contextmanager
def started(
    name: str, root: Path, command: Callable[[int], list[str]], cores: set[int]
) -> Iterator[Service]:
    """A program that listens on the port which `command` is given."""
    port = free_port()
    service = Service(name, command(port), {}, root / f"{name}.log", port, cores)
    service.start(ready=False)
    try:
        until(f"{name} listens", lambda: listens(port))
        yield service
    finally:
        service.kill()


def source(root: Path) -> Callable[[int], list[str]]:
    """The command of a data source that answers each call with the same bytes, and knows no
    alias."""
    answer = root / "answers" / METHOD[1:]
    answer.parent.mkdir(parents=True)
    answer.write_bytes(frame(bytes(ANSWER)))
    (root / "answers/aliases").write_text('{"result": {"aliases": []}, "status": "ok"}')
    folder, program = str(root / "answers"), str(servers.find("nghttpd"))
    options = ["--no-tls", "-a", "127.0.0.1", "-d", folder, "--trailer", "grpc-status: 0"]
    return lambda port: [program, *options, str(port)]


def nghttpx(upstream: int) -> Callable[[int], list[str]]:
    program = str(servers.find("nghttpx"))
    backend = f"127.0.0.1,{upstream};;proto=h2"
    options = ["--conf", "/dev/null", "--workers=1", "-L", "ERROR", "-b", backend]
    return lambda port: [program, *options, "-f", f"127.0.0.1,{port};no-tls"]


def envoy(root: Path, upstream: int, door: int) -> Callable[[int], list[str]]:
    program = str(servers.find("envoy"))

    def command(port: int) -> list[str]:
        made = configuration(port, door, upstream, key=None)
        speaks_http2(made["static_resources"]["clusters"][0])
        config = root / "envoy.json"
        config.write_text(json.dumps(made))
        return [program, "-c", str(config), "--concurrency", "1", "-l", "error",
                "--disable-hot-restart"]  # fmt: skip

    return command


def send(body: Path, shape: Shape, seconds: int, port: int) -> dict[str, Any]:
    """Send the call for some seconds; return the answers, their rate and the latencies in ms."""
    command = [
        str(servers.find("h2load")), "-c", str(shape.connections), "-m", str(shape.streams),
        "-D", str(seconds), "--warm-up-time=0", "-d", str(body), "-H",
        "content-type: application/grpc", "-H", "te: trailers",
        f"http://127.0.0.1:{port}{METHOD}",
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        check=True,
        text=True,
        timeout=seconds + 30,
        preexec_fn=lambda: os.sched_setaffinity(0, LOAD),
    )
    said = done.stdout
    answers = re.search(r"(\d+) succeeded, (\d+) failed", said)
    rate = re.search(r"finished in [\d.]+s, ([\d.]+) req/s", said)
    statuses = re.search(r"status codes: (\d+) 2xx", said)
    assert answers, said
    assert rate, said
    assert statuses, said
    data = re.search(r"\((\d+)\) data", said)
    assert data, said
    assert answers[1] == statuses[1], said
    assert int(data[1]) >= int(answers[1]) * ANSWER, f"not every call was allowed: {said}"
    return {"answers": int(answers[1]), "rate": float(rate[1])}


def figures(seconds: int, rounds: int) -> Iterator[Figure]:
    for name in PROGRAMS:
        if servers.find(name) is None:
            yield Figure("calls of gRPC", f"no {name}: {servers.how(name)}", None, "", True)
            return
    with ExitStack() as made:
        start = made.enter_context
        root = start(directory())
        (body := root / "call").write_bytes(call())
        upstream = start(started("upstream", root, source(root), LOAD)).port
        at = {"upstream": f"http://127.0.0.1:{upstream}", "grpc": f"http://127.0.0.1:{upstream}"}
        stack = Stack(
            root / "ours",
            policies=POLICIES.replace("rest://files/*", "qdrant://docs/*"),
            control_cores=LOAD,
            sidecar_cores=SERVER,
            sources=[
                {
                    **at,
                    "http": 2,
                    "alias": "docs",
                    "kind": "qdrant",
                    "listen": (listen := f"127.0.0.1:{free_port()}"),
                    "sensitivity": "low",
                }
            ],
        )
        made.callback(stack.stop)
        stack.start()
        port = int(listen.rpartition(":")[2])
        yes = start(yes_server(root))
        floor = start(started("nghttpx", root, nghttpx(upstream), SERVER))
        beside = start(started("envoy", root, envoy(root, upstream, yes.port), SERVER))
        ports = {"ours": port, "floor": floor.port, "yes": beside.port}
        services = {"ours": [stack.sidecar], "floor": [floor], "yes": [beside, yes]}
        titles = {"floor": "nghttpx", "yes": "Envoy with a gRPC server that says yes"}
        for shape in SHAPES:
            runs = {name: partial(send, body, shape, seconds, each) for name, each in ports.items()}

            def ours(send: Callable[[], dict[str, Any]] = runs["ours"]) -> dict[str, Any]:
                found = send()
                shipped(stack)
                return found

            found = rounds_of(
                {
                    name: with_cpu(ours if name == "ours" else run, services[name])
                    for name, run in runs.items()
                },
                rounds,
            )
            for other, title in titles.items():
                rates, costs = (
                    [median(found, name, what) for name in ("ours", other)]
                    for what in ("rate", "cpu")
                )
                value = (
                    f"{rates[0]:,.0f}/s ({costs[0]:.0f} µs), {rates[1]:,.0f}/s ({costs[1]:.0f} µs)"
                )
                name = f"{shape.connections} × {shape.streams} calls, to {title}"
                target = TARGETS[other] if shape == (4, 16) else None
                yield held(name, value, ratio(found, other, "rate"), target, ">=")
        assert stack.verify()["valid"]


def main() -> None:
    given = [int(each) for each in sys.argv[1:]]
    seconds, rounds = given[0] if given else SECONDS, given[1] if given[1:] else ROUNDS
    print(f"{len(CORES)} cores, {seconds} s a turn, {rounds} rounds", flush=True)
    for figure in figures(seconds, rounds):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
