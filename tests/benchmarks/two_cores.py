"""What Sluice costs, beside its floors and its rivals, in one run and one table:

    python -m tests.benchmarks.two_cores [--quick] [--compiled] [evaluate | proxy | control]

The service that is measured has one core to itself. The load has the other, with everything else
that a service needs: for a sidecar the data source, and the control API, which takes in meanwhile
what is shipped. The requests differ (`mixed.py`), and every answer is checked. Contenders take
turns, round by round; ratios are taken within a round, and medians over the rounds. What a request
costs includes shipping its record: our turn ends when all is shipped. With `--compiled` the same
services run from the tree that `deploy.compile` makes, too.

A rival that is not installed is shown as not available (`python -m tests.servers`).
"""

import argparse
import http.client
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests import servers
from tests.benchmarks import mixed, rivals
from tests.benchmarks.comparison import HEAD, Comparison, Row
from tests.benchmarks.measure import EVALUATE, LOAD, SERVER, bare, directory
from tests.benchmarks.spool import synced
from tests.benchmarks.turns import Run, rounds_of, with_cpu
from tests.ports import free_port
from tests.stack import ROOT, Service, Stack, wait_until

CONNECTIONS = (1, 16, 64)
ANSWER = 2048
"""Bytes of a data source's answer."""
JSON = "application/json"
TREE = ROOT / ".compiled"


class Started(NamedTuple):
    """A stack of one form, and the port that is measured."""

    stack: Stack
    port: int


def started(made: ExitStack, place: Path, form: str, *, vectors: int | None = None) -> Started:
    """A sidecar with its control API; with the port of a data source, a proxy before it."""
    place.mkdir()
    port, sources = free_port(), []
    if vectors is not None:
        source: dict[str, Any] = {
            "alias": "vectors",
            "kind": "qdrant",
            "upstream": f"http://127.0.0.1:{vectors}",
            "listen": f"127.0.0.1:{port}",
            "sensitivity": "low",
        }
        sources = [source]
    stack = stack_of(place, form, control_cores=LOAD, sidecar_cores=SERVER, sources=sources)
    made.callback(stack.stop)
    stack.start()
    if vectors is None:
        mixed.register(stack)
        port = stack.sidecar.port
    return Started(stack, port)


def stack_of(place: Path, form: str, **settings: Any) -> Stack:
    tree = TREE if form == "compiled" else ROOT
    stack = Stack(place, tree=tree, **settings)
    (stack.policy_file.parent / "mixed.yaml").write_text(mixed.policies())
    return stack


def shipped(stack: Stack) -> None:
    """Wait until the control API has all but the last of the sidecar's records."""

    def waiting() -> float:
        time.sleep(0.1)  # each look costs the sidecar a page of metrics
        connection = http.client.HTTPConnection("127.0.0.1", stack.sidecar.port, timeout=5)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(r"^sluice_spool_records (\S+)$", text, re.MULTILINE)
        assert found
        return float(found[1])

    wait_until("the spool is shipped", lambda: waiting() < 64, 120)


def our_turn(ours: Started, sent: mixed.Mixed, connections: int, seconds: int) -> dict[str, Any]:
    found = mixed.send(sent, ours.port, connections, seconds)
    shipped(ours.stack)
    return found


def evaluate(seconds: int, rounds: int, forms: list[str]) -> Iterator[Row]:
    with ExitStack() as made:
        root = made.enter_context(directory())
        ours = {form: started(made, root / form, form) for form in forms}
        sent = {form: mixed.evaluations(each.stack.agent_key) for form, each in ours.items()}
        for form, each in ours.items():
            mixed.send(sent[form], each.port, 16, 4)  # claims the sessions
        first = ours[forms[0]]
        size = str(answer_size(first.port, first.stack.agent_key))
        floor = made.enter_context(bare(root, "constant", size, SERVER))
        program = servers.find("cerbos")
        cerbos = program and made.enter_context(
            rivals.cerbos(program, rivals.Place(root, 0, 0, SERVER))
        )
        for many in CONNECTIONS:
            runs = {
                form: of_service(partial(our_turn, each, sent[form], many, seconds), each)
                for form, each in ours.items()
            }
            asked = mixed.unchecked(sent[forms[0]])
            runs["floor"] = with_cpu(partial(mixed.send, asked, floor.port, many, seconds), [floor])
            if cerbos:
                turn = partial(mixed.send, mixed.cerbos_checks(), cerbos.port, many, seconds)
                runs["Cerbos"] = with_cpu(turn, [cerbos])
            if many == 1:
                runs["fdatasync"] = partial(synced, root, seconds)
            compared = Comparison(rounds_of(runs, rounds), forms, many)
            others = {"Cerbos": bool(cerbos), "OPA": False}
            yield from compared.rows("evaluate, durable", others)
        for each in ours.values():
            assert each.stack.verify()["valid"]


def of_service(run: Run, ours: Started) -> Run:
    return with_cpu(run, [ours.stack.sidecar])


def answer_size(port: int, key: str) -> int:
    """The bytes of one answer."""
    body = mixed.evaluations(key).requests[0].partition(b"\r\n\r\n")[2]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", EVALUATE, body, {"X-API-Key": key, "Content-Type": JSON})
    size = len(connection.getresponse().read())
    connection.close()
    return size


def proxy(seconds: int, rounds: int, forms: list[str]) -> Iterator[Row]:
    with ExitStack() as made:
        root = made.enter_context(directory())
        vectors = made.enter_context(bare(root, "vectors", str(ANSWER), LOAD))
        ours = {form: started(made, root / form, form, vectors=vectors.port) for form in forms}
        upstream = f"http://127.0.0.1:{vectors.port}"
        floor = made.enter_context(bare(root, "passthrough", upstream, SERVER))
        decision = made.enter_context(bare(root, "decision", "-", SERVER))
        place = rivals.Place(root, vectors.port, decision.port, SERVER)
        found: dict[str, Service | None] = {}
        for name, start in {"nginx": rivals.nginx, "Envoy": rivals.envoy}.items():
            program = servers.find(name.lower())
            found[name] = made.enter_context(start(program, place)) if program else None
        sent = mixed.searches()
        for many in CONNECTIONS:
            runs = {
                form: of_service(partial(our_turn, each, sent, many, seconds), each)
                for form, each in ours.items()
            }
            runs["floor"] = with_cpu(partial(mixed.send, sent, floor.port, many, seconds), [floor])
            for name, rival in found.items():
                if rival is not None:
                    turn = partial(mixed.send, sent, rival.port, many, seconds)
                    runs[name] = with_cpu(turn, [rival, decision])
            if many == 1:
                runs["fdatasync"] = partial(synced, root, seconds)
            compared = Comparison(rounds_of(runs, rounds), forms, many)
            others = {name: rival is not None for name, rival in found.items()}
            yield from compared.rows("reverse proxy, 2 KB", others)
        for each in ours.values():
            assert each.stack.verify()["valid"]


def control(seconds: int, rounds: int, forms: list[str]) -> Iterator[Row]:
    """The control API's own evaluations, on SQLite, each answered after its commit."""
    with ExitStack() as made:
        root = made.enter_context(directory())
        runs: dict[str, Run] = {}
        stacks = []
        for form in forms:
            (root / form).mkdir()
            stack = stack_of(root / form, form, control_cores=SERVER)
            made.callback(stack.control.stop)
            stack.start_control()
            stack.prepare()
            mixed.register(stack)
            stacks.append(stack)
            sent = mixed.evaluations(stack.agent_key)
            turn = partial(mixed.send, sent, stack.control.port, 64, seconds)
            runs[form] = with_cpu(turn, [stack.control])
        size = str(answer_size(stacks[0].control.port, stacks[0].agent_key))
        floor = made.enter_context(bare(root, "constant", size, SERVER))
        asked = mixed.unchecked(mixed.evaluations(stacks[0].agent_key))
        runs["floor"] = with_cpu(partial(mixed.send, asked, floor.port, 64, seconds), [floor])
        compared = Comparison(rounds_of(runs, rounds), forms, 64)
        yield from compared.rows("control API evaluate, SQLite", {})
        for stack in stacks:
            assert stack.verify()["valid"]


PARTS = {"evaluate": evaluate, "proxy": proxy, "control": control}


def table(quick: bool, compiled: bool, only: str = "") -> Iterator[str]:
    """The table's lines."""
    seconds, rounds = (2, 1) if quick else (6, 3)
    forms = ["pure", *(["compiled"] if compiled else [])]
    yield from HEAD
    for name, part in PARTS.items():
        if only in ("", name):
            for row in part(seconds, rounds, forms):
                yield row.text()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.two_cores")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument("--compiled", action="store_true", help="the compiled tree beside the pure")
    parser.add_argument("only", nargs="?", default="", choices=["", *PARTS])
    arguments = parser.parse_args()
    if arguments.compiled and not TREE.exists():
        parser.error(f"no compiled tree in `{TREE}`: make it with `python -m deploy.compile`")
    for line in table(arguments.quick, arguments.compiled, arguments.only):
        print(line, flush=True)


if __name__ == "__main__":
    main()
