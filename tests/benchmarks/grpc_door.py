"""Envoy with our gRPC check door: `python -m tests.benchmarks.grpc_door [SECONDS [ROUNDS]]`.

One core has Envoy and the sidecar; the other has the load, the data source and the control API. In
turn with it, on the same core: a plain aiohttp proxy, which is the floor; Envoy that asks nothing;
and Envoy that asks a gRPC server of grpcio's which always says yes and records nothing. OPA with
its Envoy plugin is in no package registry that the tests may use.

`python -m tests.benchmarks.grpc_door yes PORT` is the server that says yes.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from tests import servers
from tests.benchmarks import mixed
from tests.benchmarks.measure import CORES, LOAD, SERVER, Figure, bare, directory, request
from tests.benchmarks.turns import held, median, ratio, rounds_of, with_cpu
from tests.benchmarks.two_cores import shipped
from tests.sidecar.doors.grpc.envoy import configuration
from tests.support.ports import free_port
from tests.support.stack import Service, Stack, listens
from tests.support.waiting import until

SECONDS, ROUNDS = 5, 3
CONNECTIONS = (1, 16, 64)
ANSWER = 2048
TARGET = 0.3
_YES = b"\x0a\x00\x1a\x00"
"""A CheckResponse with status 0 and an empty `ok_response`."""

_CONTENDERS = {
    "floor": "a plain aiohttp proxy",
    "unchecked": "Envoy that asks nothing",
    "yes": "Envoy with a gRPC server that says yes",
}


async def say_yes(port: int) -> None:
    class Always(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
        def service(self, _details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(self._check)

        async def _check(self, _message: bytes, _context: Any) -> bytes:
            return _YES

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Always(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


@contextmanager
def yes_server(root: Path) -> Iterator[Service]:
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.grpc_door", "yes", str(port)]
    yield from _running("yes", command, port, root)


@contextmanager
def envoy(name: str, root: Path, upstream: int, door: int, key: str | None) -> Iterator[Service]:
    """Envoy with one worker. Without a door (0), it asks nothing."""
    program, port = servers.find("envoy"), free_port()
    made = configuration(port, door, upstream, key=key)
    if not door:
        [listener] = made["static_resources"]["listeners"]
        del listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]
    config = root / f"{name}.json"
    config.write_text(json.dumps(made))
    command = [str(program), "-c", str(config), "--concurrency", "1", "-l", "error"]
    yield from _running(name, [*command, "--disable-hot-restart"], port, root)


def _running(name: str, command: list[str], port: int, root: Path) -> Iterator[Service]:
    service = Service(name, command, {}, root / f"{name}.log", port, SERVER)
    service.start(ready=False)
    try:
        until(f"{name} listens", lambda: listens(port))
        yield service
    finally:
        service.kill()


def requests() -> mixed.Mixed:
    """Reads of 1,000 files, for as many users."""
    made = []
    for number in range(1000):
        sent = request("GET", f"/reports/{number}")
        made.append(sent.replace(b"\r\n", b"\r\nX-Sluice-User: user-%d\r\n" % number, 1))
    return mixed.Mixed(made, (("", ""),))


def figures(seconds: int, rounds: int) -> Iterator[Figure]:
    if servers.find("envoy") is None:
        yield Figure("Envoy with a gRPC door", servers.how("envoy"), None, "", True)
        return
    with ExitStack() as made:
        root = made.enter_context(directory())
        upstream = made.enter_context(bare(root, "upstream", str(ANSWER), LOAD)).port
        port = free_port()
        door = {
            "name": "edge",
            "protocol": "envoy_grpc",
            "source": "files",
            "listen": f"127.0.0.1:{port}",
            "agent": {"id": "agt_story", "role": "support"},
        }
        source = {
            "alias": "files",
            "kind": "rest",
            "upstream": f"http://127.0.0.1:{upstream}",
            "sensitivity": "low",
        }
        stack = Stack(
            root / "ours",
            control_cores=LOAD,
            sidecar_cores=SERVER,
            sources=[source],
            doors=[door],
        )
        made.callback(stack.stop)
        stack.start()
        start = made.enter_context
        at = f"http://127.0.0.1:{upstream}"
        yes = start(yes_server(root))
        services = {
            "ours": [start(envoy("ours", root, upstream, port, stack.agent_key)), stack.sidecar],
            "floor": [start(bare(root, "passthrough", at, SERVER))],
            "unchecked": [start(envoy("unchecked", root, upstream, 0, None))],
            "yes": [start(envoy("yes-envoy", root, upstream, yes.port, None)), yes],
        }
        sent = requests()
        for many in CONNECTIONS:
            runs = {
                name: partial(mixed.send, sent, each[0].port, many, seconds)
                for name, each in services.items()
            }

            def ours(send: Any = runs["ours"]) -> dict[str, Any]:
                found: dict[str, Any] = send()
                shipped(stack)
                return found

            turns = {
                name: with_cpu(ours if name == "ours" else run, services[name])
                for name, run in runs.items()
            }
            found = rounds_of(turns, rounds)
            for other, title in _CONTENDERS.items():
                rates, costs = (
                    [median(found, name, what) for name in ("ours", other)]
                    for what in ("rate", "cpu")
                )
                value = (
                    f"{rates[0]:,.0f}/s ({costs[0]:.0f} µs), {rates[1]:,.0f}/s ({costs[1]:.0f} µs)"
                )
                target = TARGET if other == "floor" else None
                name = f"{many} connections, to {title}"
                yield held(name, value, ratio(found, other, "rate"), target, ">=")
        assert stack.verify()["valid"]


def main() -> None:
    if sys.argv[1:2] == ["yes"]:
        uvloop.run(say_yes(int(sys.argv[2])))
        return
    given = [int(each) for each in sys.argv[1:]]
    seconds, rounds = given[0] if given else SECONDS, given[1] if given[1:] else ROUNDS
    print(f"{len(CORES)} cores, {seconds} s a turn, {rounds} rounds", flush=True)
    for figure in figures(seconds, rounds):
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
