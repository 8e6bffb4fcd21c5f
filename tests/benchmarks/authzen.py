"""AuthZEN evaluation beside `evaluate`: `python -m tests.benchmarks.authzen [--quick]`.

The same retrievals in both shapes: first without a network, in one process, by CPU second of all
threads, which says most on a machine with other work. Then to one sidecar on a core of its own
(`two_cores`), in turn, at 1, 16 and 64 connections; every answer is checked.
"""

import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import uvloop

from tests.benchmarks import mixed
from tests.benchmarks.candidates import ROUNDS, Turn, ready
from tests.benchmarks.measure import CORES, Figure, directory
from tests.benchmarks.turns import held, median, ratio, rounds_of
from tests.benchmarks.two_cores import CONNECTIONS, Options, options_of, our_turn, started
from tests.support.fake_control_api import EVALUATE_KEY

TARGET = 0.9


def over_the_network(options: Options) -> Iterator[Figure]:
    with ExitStack() as made:
        sidecar = started(made, made.enter_context(directory()) / "sidecar", "pure")
        key = sidecar.stack.agent_key
        shapes = {"ours": mixed.authzen_evaluations(key), "evaluate": mixed.evaluations(key)}
        mixed.send(shapes["evaluate"], sidecar.port, 16, 4)  # claims the sessions
        for many in CONNECTIONS:
            runs = {name: our_turn(options, sidecar, sent, many) for name, sent in shapes.items()}
            found = rounds_of(runs, options.rounds)
            rates = [median(found, name, "rate") for name in shapes]
            cpu = [median(found, name, "cpu") for name in shapes]
            value = f"{rates[0]:,.0f}/s, {rates[1]:,.0f}/s; {cpu[0]:.0f}, {cpu[1]:.0f} µs"
            connections = "connection" if many == 1 else "connections"
            name = f"AuthZEN beside evaluate, {many} {connections}"
            yield held(name, value, ratio(found, "evaluate", "rate"), TARGET, ">=")
        assert sidecar.stack.verify()["valid"]


async def in_one_process(count: int) -> Figure:
    shapes = (mixed.authzen_evaluations(EVALUATE_KEY), mixed.evaluations(EVALUATE_KEY))
    pairs = []
    with directory() as folder:
        turns = [Turn(shape.requests) for shape in shapes]
        async with (
            ready(folder / "authzen", None, turns[0]) as ours,
            ready(folder / "evaluate", None, turns[1]) as theirs,
        ):
            both = list(zip(turns, (ours, theirs), strict=True))
            for number in range(ROUNDS):
                # Each goes first in every other round.
                order = both if number % 2 else both[::-1]
                rates = [await turn.take(connections, count) for turn, connections in order]
                pairs.append(rates if number % 2 else rates[::-1])
    found = statistics.median(one / other for one, other in pairs)
    one, other = (statistics.median(each) for each in zip(*pairs, strict=True))
    value = f"{one:,.0f} against {other:,.0f} a CPU second"
    return held("AuthZEN beside evaluate, in one process", value, found, TARGET, ">=")


def figures(quick: bool) -> Iterator[Figure]:
    yield uvloop.run(in_one_process(mixed.REQUESTS))
    yield from over_the_network(options_of(quick, compiled=False, real_time=False))


if __name__ == "__main__":
    print(f"{len(CORES)} cores", flush=True)
    for figure in figures("--quick" in sys.argv):
        print(figure.row(), flush=True)
