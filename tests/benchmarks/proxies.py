"""The reverse proxy beside other proxies that ask for a decision, in one run on the same cores.

    python -m tests.benchmarks.proxies [--quick] [rivals | latency | chroma]

A contender is a proxy together with whatever decides for it, on the same core or the same two; the
load, the data source and the control API have others. Contenders take turns, round by round, and a
ratio is taken within a round. Before a rival's turn our sidecar has shipped what it has recorded,
so no contender pays for another's work. A sidecar is one process: with two cores its rate is that
of one,
less what its own threads gain, and the ratios are shown without a target.
"""

import argparse
import http.client
import re
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests import servers
from tests.benchmarks import rivals
from tests.benchmarks.chroma import chroma
from tests.benchmarks.measure import CORES, LOAD, SERVER, Figure, bare, load, request
from tests.benchmarks.services import directory
from tests.benchmarks.turns import Rounds, Run, held, median, ratio, rounds_of, with_cpu
from tests.ports import free_port
from tests.stack import Stack, running, wait_until

CONNECTIONS = 16
ANSWER = "2048"
SENT = request("GET", "/reports/7")
FREE = {CORES[-1]}
"""The data source's core; for a contender with two cores, the data source is with the load."""
BESIDE = {CORES[2 % len(CORES)]}
"""The control API's core."""


@contextmanager
def sidecar(
    made: Path, upstream: int, cores: set[int], mode: str = "durable", **source: Any
) -> Iterator[tuple[int, Stack]]:
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
    with running(
        made, control_cores=BESIDE, sidecar_cores=cores, sources=[whole], mode=mode
    ) as stack:
        yield port, stack
        assert stack.verify()["valid"]


def shipped(stack: Stack) -> None:
    """Wait until the control API has all but the last of the sidecar's records."""

    def waiting() -> float:
        connection = http.client.HTTPConnection("127.0.0.1", stack.sidecar.port, timeout=5)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(r"^sluice_spool_records (\S+)$", text, re.MULTILINE)
        assert found
        return float(found[1])

    wait_until("the spool is shipped", lambda: waiting() < 64, 120)


def our_turn(
    ours: Stack, port: int, sent: bytes, connections: int, seconds: float
) -> dict[str, Any]:
    """Our own turn ends when its records are shipped."""
    found = load(port, sent, connections, seconds)
    shipped(ours)
    return found


def starters() -> Iterator[tuple[str, rivals.Rival, Path]]:
    """The rivals that are installed."""
    for name, start in rivals.ALL.items():
        program = servers.find(name)
        if program is None:
            print(f"no {name} here: {servers.how(name)}", file=sys.stderr)
        else:
            yield name, start, program


def against_rivals(cores: set[int], seconds: float, rounds: int) -> Iterator[Figure]:
    """2 KB responses over 16 connections."""
    with ExitStack() as stack:
        made = stack.enter_context(directory())
        source = LOAD if cores & FREE else FREE
        upstream = stack.enter_context(bare(made, "upstream", ANSWER, source))
        decision = stack.enter_context(bare(made, "decision", "-", cores))
        place = rivals.Place(made, upstream.port, decision.port, cores)
        port, ours = stack.enter_context(sidecar(made / "stack", upstream.port, cores))
        turn = partial(our_turn, ours, port, SENT, CONNECTIONS, seconds)
        runs = {"ours": with_cpu(turn, [ours.sidecar])}
        for name, start, program in starters():
            rival = stack.enter_context(start(program, place))
            asked = [] if name == "mitmdump" else [decision]
            turn = partial(load, rival.port, SENT, CONNECTIONS, seconds)
            runs[name] = with_cpu(turn, [rival, *asked])
        found = rounds_of(runs, rounds)
    yield from compared(found, len(cores))


def compared(found: Rounds, cores: int) -> Iterator[Figure]:
    on = "one core" if cores == 1 else f"{cores} cores"
    rates = {"nginx": 1.0, "envoy": 1.5, "mitmdump": 8.0} if cores == 1 else {}
    tails = {"nginx": 1.0} if cores == 1 else {}
    our_rate, our_tail = median(found, "ours", "rate"), median(found, "ours", "p99")
    our_cpu = median(found, "ours", "cpu")
    for name in found[0]:
        if name == "ours":
            continue
        rate, tail = ratio(found, name, "rate"), ratio(found, name, "p99")
        value = f"{our_rate:,.0f}/s against {median(found, name, 'rate'):,.0f}/s"
        yield held(f"proxy to {name}, {on}, rate", value, rate, rates.get(name), ">=")
        value = f"{our_tail:.2f} ms against {median(found, name, 'p99'):.2f} ms"
        yield held(f"proxy to {name}, {on}, p99", value, tail, tails.get(name), "<=")
        value = f"{our_cpu:.0f} µs against {median(found, name, 'cpu'):.0f} µs"
        yield held(f"proxy to {name}, {on}, CPU", value, ratio(found, name, "cpu"), None, "<=")


def added(seconds: float, rounds: int) -> Iterator[Figure]:
    """What the proxy adds to the median response time with one connection."""
    limits = {"durable": 0.6, "best_effort": 0.35}
    with ExitStack() as stack:
        made = stack.enter_context(directory())
        upstream = stack.enter_context(bare(made, "upstream", ANSWER, FREE))
        runs: dict[str, Run] = {"direct": partial(load, upstream.port, SENT, 1, seconds)}
        for mode in limits:
            port, ours = stack.enter_context(sidecar(made / mode, upstream.port, SERVER, mode))
            runs[mode] = partial(our_turn, ours, port, SENT, 1, seconds)
        found = rounds_of(runs, rounds)
    for mode, limit in limits.items():
        more = statistics.median(each[mode]["p50"] - each["direct"]["p50"] for each in found)
        value = f"{more:.3f} ms above {median(found, 'direct', 'p50'):.3f} ms"
        name = f"proxy, one connection, {mode}, added p50"
        yield Figure(name, value, more / limit, f"<= {limit} ms", more <= limit)


def chroma_query(seconds: float, rounds: int) -> Iterator[Figure]:
    """A real Chroma: the nearest documents to an embedding of 384 dimensions."""
    if servers.find("chroma") is None:
        print(f"no chroma here: {servers.how('chroma')}", file=sys.stderr)
        return
    with ExitStack() as stack:
        made = stack.enter_context(directory())
        at, sent = stack.enter_context(chroma(made, FREE))
        names = {
            "chroma://files/default_tenant/default_database/handbook": {
                "source_id": "handbook",
                "sensitivity": "low",
            }
        }
        port, ours = stack.enter_context(
            sidecar(made / "stack", at, SERVER, kind="chroma", names=names)
        )
        for many in (CONNECTIONS, 1):
            runs: dict[str, Run] = {
                "ours": partial(our_turn, ours, port, sent, many, seconds),
                "direct": partial(load, at, sent, many, seconds),
            }
            found = rounds_of(runs, rounds)
            rate = ratio(found, "direct", "rate")
            value = f"{median(found, 'ours', 'rate'):,.0f}/s against "
            value += f"{median(found, 'direct', 'rate'):,.0f}/s"
            # One connection measures the added latency, not the rate: it is shown.
            target = 0.9 if many > 1 else None
            yield held(f"Chroma query to direct, {many} connections", value, rate, target, ">=")


def figures(quick: bool, only: str = "") -> Iterator[Figure]:
    seconds, rounds = (1.5, 1) if quick else (5.0, 5)
    if only in ("", "rivals"):
        yield from against_rivals(SERVER, seconds, rounds)
        if len(CORES) > 3:
            yield from against_rivals(SERVER | FREE, seconds, rounds)
    if only in ("", "latency"):
        yield from added(seconds, rounds)
    if only in ("", "chroma"):
        yield from chroma_query(seconds, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.proxies")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("only", nargs="?", default="", choices=["", "rivals", "latency", "chroma"])
    arguments = parser.parse_args()
    for figure in figures(arguments.quick, arguments.only):
        print(figure.row(), flush=True)
