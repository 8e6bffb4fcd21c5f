"""`make bench`: every figure, with its ratio and its target, in one run.

python -m tests.benchmarks            about thirty minutes
python -m tests.benchmarks --quick    about four minutes: checks that everything runs
"""

import argparse
import platform
from collections.abc import Callable, Iterable

from tests.benchmarks import (
    blocking,
    core,
    postgresql,
    proxies,
    proxy_memory,
    services,
    webhook,
)
from tests.benchmarks.measure import CORES, Figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument(
        "--only", default="", help="core, services, proxies, memory, blocking, postgresql, webhook"
    )
    arguments = parser.parse_args()
    print(f"{len(CORES)} cores, Python {platform.python_version()}", flush=True)
    print(f"{'measure':<44} {'value':<44} {'ratio':>6}  {'target':<12} reached", flush=True)
    parts: dict[str, Callable[[], Iterable[Figure]]] = {
        "core": core.figures,
        "services": lambda: services.figures(arguments.quick),
        "proxies": lambda: proxies.figures(arguments.quick),
        "memory": lambda: proxy_memory.figures(arguments.quick),
        "blocking": lambda: blocking.figures(arguments.quick),
        "postgresql": lambda: postgresql.figures(arguments.quick),
        "webhook": lambda: webhook.figures(arguments.quick),
    }
    for name, figures in parts.items():
        if arguments.only in ("", name):
            for figure in figures():
                print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
