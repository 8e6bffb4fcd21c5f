"""What Sluice costs, beside its floors and its rivals, in one run and one table:

    python -m tests.benchmarks.two_cores [OPTIONS] [evaluate | proxy | control]

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
from tests.benchmarks.turns import Run, in_real_time, rounds_of, with_cpu
from tests.support.ports import free_port
from tests.support.stack import ROOT, Service, Stack
from tests.support.waiting import AWAY, until

CONNECTIONS = (1, 16, 64)
ANSWER = 2048
"""Bytes of a data source's answer."""
TREE = ROOT / ".compiled/tree"


class Options(NamedTuple):
    """How to measure. `forms` are "pure" and "compiled"; `beside` is what all contenders use."""

    seconds: int
    rounds: int
    forms: list[str]
    real_time: bool
    beside: tuple[Service, ...] = ()

    def turn(self, run: Run, services: list[Service], connections: int) -> Run:
        """The turn of a contender that consists of the services."""
        turn, real_time = with_cpu(run, services), self.real_time and connections == 1
        return in_real_time(turn, [*services, *self.beside]) if real_time else turn


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

    until("the spool is shipped", lambda: waiting() < 64, despite=AWAY, seconds=120)


def our_turn(options: Options, ours: Started, sent: mixed.Mixed, connections: int) -> Run:
    def run() -> dict[str, Any]:
        found = mixed.send(sent, ours.port, connections, options.seconds)
        shipped(ours.stack)
        return found

    return options.turn(run, [ours.stack.sidecar], connections)


def turn_of(options: Options, port: int, sent: mixed.Mixed, many: int, *services: Service) -> Run:
    """The turn of a floor or a rival."""
    return options.turn(partial(mixed.send, sent, port, many, options.seconds), [*services], many)


def evaluate(options: Options) -> Iterator[Row]:
    with ExitStack() as made:
        root = made.enter_context(directory())
        ours = {form: started(made, root / form, form) for form in options.forms}
        sent = {form: mixed.evaluations(each.stack.agent_key) for form, each in ours.items()}
        for form, each in ours.items():
            mixed.send(sent[form], each.port, 16, 4)  # claims the sessions
        first = ours[options.forms[0]]
        size = str(answer_size(first.port, first.stack.agent_key))
        floor = made.enter_context(bare(root, "constant", size, SERVER))
        program = servers.find("cerbos")
        cerbos = program and made.enter_context(
            rivals.cerbos(program, rivals.Place(root, 0, 0, SERVER))
        )
        for many in CONNECTIONS:
            runs = {form: our_turn(options, each, sent[form], many) for form, each in ours.items()}
            asked = mixed.unchecked(sent[options.forms[0]])
            runs["floor"] = turn_of(options, floor.port, asked, many, floor)
            if cerbos:
                checks = mixed.cerbos_checks()
                runs["Cerbos"] = turn_of(options, cerbos.port, checks, many, cerbos)
            if many == 1:
                runs["fdatasync"] = options.turn(partial(synced, root, options.seconds), [], many)
            compared = Comparison(rounds_of(runs, options.rounds), options.forms, many)
            others = {"Cerbos": bool(cerbos), "OPA": False}
            yield from compared.rows("evaluate, durable", others)
        for each in ours.values():
            assert each.stack.verify()["valid"]


def answer_size(port: int, key: str) -> int:
    """The bytes of one answer."""
    body = mixed.evaluations(key).requests[0].partition(b"\r\n\r\n")[2]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    connection.request("POST", EVALUATE, body, headers)
    size = len(connection.getresponse().read())
    connection.close()
    return size


def proxy(options: Options) -> Iterator[Row]:
    with ExitStack() as made:
        root = made.enter_context(directory())
        vectors = made.enter_context(bare(root, "vectors", str(ANSWER), LOAD))
        at, forms, options = vectors.port, options.forms, options._replace(beside=(vectors,))
        ours = {form: started(made, root / form, form, vectors=at) for form in forms}
        upstream = f"http://127.0.0.1:{at}"
        floor = made.enter_context(bare(root, "passthrough", upstream, SERVER))
        decision = made.enter_context(bare(root, "decision", "-", SERVER))
        place = rivals.Place(root, at, decision.port, SERVER)
        found: dict[str, Service | None] = {}
        for name, start in {"nginx": rivals.nginx, "Envoy": rivals.envoy}.items():
            program = servers.find(name.lower())
            found[name] = made.enter_context(start(program, place)) if program else None
        sent = mixed.searches()
        for many in CONNECTIONS:
            runs = {form: our_turn(options, each, sent, many) for form, each in ours.items()}
            runs["floor"] = turn_of(options, floor.port, sent, many, floor)
            for name, rival in found.items():
                if rival is not None:
                    runs[name] = turn_of(options, rival.port, sent, many, rival, decision)
            if many == 1:
                runs["fdatasync"] = options.turn(partial(synced, root, options.seconds), [], many)
            compared = Comparison(rounds_of(runs, options.rounds), options.forms, many)
            others = {name: rival is not None for name, rival in found.items()}
            yield from compared.rows("reverse proxy, 2 KB", others)
        for each in ours.values():
            assert each.stack.verify()["valid"]


def control(options: Options) -> Iterator[Row]:
    """The control API's own evaluations, on SQLite, each answered after its commit."""
    with ExitStack() as made:
        root = made.enter_context(directory())
        runs: dict[str, Run] = {}
        stacks = []
        for form in options.forms:
            (root / form).mkdir()
            stack = stack_of(root / form, form, control_cores=SERVER)
            made.callback(stack.control.stop)
            stack.start_control()
            stack.prepare()
            mixed.register(stack)
            stacks.append(stack)
            sent = mixed.evaluations(stack.agent_key)
            runs[form] = turn_of(options, stack.control.port, sent, 64, stack.control)
        size = str(answer_size(stacks[0].control.port, stacks[0].agent_key))
        floor = made.enter_context(bare(root, "constant", size, SERVER))
        asked = mixed.unchecked(mixed.evaluations(stacks[0].agent_key))
        runs["floor"] = turn_of(options, floor.port, asked, 64, floor)
        compared = Comparison(rounds_of(runs, options.rounds), options.forms, 64)
        yield from compared.rows("control API evaluate, SQLite", {})
        for stack in stacks:
            assert stack.verify()["valid"]


PARTS = {"evaluate": evaluate, "proxy": proxy, "control": control}


def table(options: Options, only: str = "") -> Iterator[str]:
    """The table's lines."""
    yield from HEAD
    for name, part in PARTS.items():
        if only in ("", name):
            for row in part(options):
                yield row.text()


def options_of(quick: bool, compiled: bool, real_time: bool) -> Options:
    seconds, rounds = (2, 1) if quick else (6, 3)
    if compiled and not TREE.exists():
        raise SystemExit(f"no `{TREE}`: `python -m deploy.compile tree .compiled` makes it")
    return Options(seconds, rounds, ["pure", *(["compiled"] if compiled else [])], real_time)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.two_cores")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument("--compiled", action="store_true", help="the compiled tree beside the pure")
    parser.add_argument("--real-time", action="store_true", help="on a shared machine, as root")
    parser.add_argument("only", nargs="?", default="", choices=["", *PARTS])
    arguments = parser.parse_args()
    options = options_of(arguments.quick, arguments.compiled, arguments.real_time)
    for line in table(options, arguments.only):
        print(line, flush=True)


if __name__ == "__main__":
    main()
