"""The command line of `sluice policy`.

    python -m deploy.commands.policy diff OLD NEW        also `sluice policy diff OLD NEW`

Exit codes: 0; 1 if the command finds what it was asked to fail for (errors in files, changes with
`--fail-on`); 2 if files or answers can't be read or analysed.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

from deploy.commands.policy import (
    access,
    candidate,
    check,
    diff,
    fmt,
    init,
    schema,
    test,
)
from deploy.commands.policy.sources import Unusable
from policies.analysis.names import TooManyClasses
from policies.ground.clock import Clock
from policies.ground.log_line import for_a_reader
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments

LEVELS = (
    "A level in a question, a row, a test or a guardrail is the one that a request is decided at. "
    "The levels that a sidecar's settings and /v1/sources state of a source, which can only raise "
    "it, are not applied: ask /v1/context/simulate for one request with the tenant's levels. "
    "impact and candidate take them into account, since they follow requests that were decided."
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` defaults to those of the process."""
    description = "Tools for authors of policies."
    parser = argparse.ArgumentParser("sluice policy", description=description, epilog=LEVELS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        check.add_lint,
        check.add_check,
        diff.add_diff,
        access.add_who,
        access.add_can,
        diff.add_impact,
        candidate.add,
        fmt.add,
        init.add,
        schema.add,
        test.add,
    ):
        add(lambda name, line: commands.add_parser(name, help=line))
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    given = argparse.Namespace(environ=os.environ, clock=clock)
    options = parser.parse_args(arguments, given)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return for_a_reader(lambda: run(options))
    except (Unusable, UnusableArguments, ServiceUnusable, TooManyClasses) as error:
        print(f"sluice policy: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
