"""`make bench`: every figure, with its ratio and its target, in one run.

python -m tests.benchmarks            about ten minutes
python -m tests.benchmarks --quick    about one: whether it runs, not what it says
"""

import argparse
import platform

from tests.benchmarks import core, services
from tests.benchmarks.measure import CORES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="one short round of each")
    parser.add_argument("--only", default="", help="core or services")
    arguments = parser.parse_args()
    print(f"{len(CORES)} cores, Python {platform.python_version()}", flush=True)
    print(f"{'measure':<44} {'value':<44} {'ratio':>6}  {'target':<12} reached", flush=True)
    if arguments.only != "services":
        for figure in core.figures():
            print(figure.row(), flush=True)
    if arguments.only != "core":
        for figure in services.figures(arguments.quick):
            print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
