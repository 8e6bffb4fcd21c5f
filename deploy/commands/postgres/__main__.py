"""The command line of `sluice postgres`.

    python -m deploy.commands.postgres plan --alias crm …     also `sluice postgres plan …`

Exit codes: 0; 1 for findings of `check`; 2 if arguments, files, the service or the server can't be
used.
"""

import argparse
import os
import sys
from collections.abc import Callable

from deploy.commands.policy.sources import Unusable
from deploy.commands.postgres import check, identity, plan
from policies.analysis.names import TooManyClasses
from policies.ground.log_line import for_a_reader, printable
from policies.ground.process.api_client import ServiceUnusable, UnusableArguments


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code. `arguments` defaults to those of the process."""
    parser = argparse.ArgumentParser(
        "sluice postgres",
        description="The rights of a `postgres` source's login role in the server itself, made "
        "from the policies. Changes nothing: what is to be run is printed.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (plan.add, plan.add_relations, check.add, identity.add):
        add(lambda name, line: commands.add_parser(name, help=line, description=f"{line}."))
    options = parser.parse_args(arguments, argparse.Namespace(environ=os.environ))
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return for_a_reader(lambda: run(options))
    except (Unusable, UnusableArguments, TooManyClasses) as error:
        print(f"sluice postgres: {printable(str(error))}", file=sys.stderr)
    except ServiceUnusable as error:
        print(f"sluice postgres: {error}", file=sys.stderr)  # of several lines, each printable
    return 2


if __name__ == "__main__":
    sys.exit(main())
