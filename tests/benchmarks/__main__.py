"""`make bench`: every figure, with its ratio and its target, in one run.

python -m tests.benchmarks            about forty minutes
python -m tests.benchmarks --quick    about eight minutes: checks that everything runs

The table of `two_cores` comes first, and the other figures after it.
"""

import argparse
import platform
from collections.abc import Callable, Iterable

from tests.benchmarks import (
    analysis,
    authzen,
    blocking,
    chroma,
    core,
    grpc_door,
    guard,
    memory,
    postgresql,
    two_cores,
    webhook,
)
from tests.benchmarks.measure import CORES, Figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument("--only", default="", help="two_cores, core, analysis, chroma, memory, …")
    parser.add_argument("--compiled", action="store_true", help="the compiled services, too")
    arguments = parser.parse_args()
    print(f"{len(CORES)} cores, Python {platform.python_version()}", flush=True)
    if arguments.only in ("", "two_cores"):
        options = two_cores.options_of(arguments.quick, arguments.compiled, real_time=False)
        for line in two_cores.table(options):
            print(line, flush=True)
    print(f"{'measure':<44} {'value':<44} {'ratio':>6}  {'target':<12} reached", flush=True)
    parts: dict[str, Callable[[], Iterable[Figure]]] = {
        "core": core.figures,
        "analysis": analysis.figures,
        "authzen": lambda: authzen.figures(arguments.quick),
        "guard": guard.figures,
        "chroma": lambda: chroma.figures(arguments.quick),
        "memory": lambda: memory.figures(arguments.quick),
        "blocking": lambda: blocking.figures(arguments.quick),
        "postgresql": lambda: postgresql.figures(arguments.quick),
        "grpc_door": lambda: grpc_door.figures(*((2, 1) if arguments.quick else (5, 3))),
        "webhook": lambda: webhook.figures(arguments.quick),
    }
    for name, figures in parts.items():
        if arguments.only in ("", name):
            for figure in figures():
                print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
