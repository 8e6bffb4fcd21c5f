"""Verifies a log in its database. `sluice verify --database URL` checks its arguments, and then
runs this program in its place.

    python -m control_api.log.database_verifier --database URL [--store URL] [--log TENANT] …

Exit codes: 0 if all holds, 1 for findings, 2 for a database that can't be read, or can't be
compared with a checkpoint that was given.
"""

import json
import sys
import time
from argparse import ArgumentParser

from control_api.log.database_verifier.verify import DatabaseOptions, verify_database
from policies.ground.clock import Clock
from policies.ground.log_line import for_a_reader, printable
from policies.trail.verdict.outcome import Unusable
from policies.trail.verdict.summary import summary
from policies.trail.verdict.trusted_keys import add_database, add_trust, check_quorum


def main(arguments: list[str]) -> int:
    """Verify one log, and print the findings. Returns the exit code."""
    parser = ArgumentParser(prog="sluice verify")
    add_trust(parser)
    add_database(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(arguments)
    database = DatabaseOptions(
        options.database,
        options.store,
        options.log,
        options.key,
        options.witness,
        options.quorum,
        options.checkpoint,
    )
    try:
        check_quorum(options)
        outcome = verify_database(database, Clock(lambda: time.time_ns() // 1000, time.monotonic))
    except Unusable as error:
        print(f"sluice verify: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sluice verify: interrupted, nothing is proven", file=sys.stderr)
        return 2
    wire = outcome.to_wire()
    # As ASCII: see `printable`.
    text = json.dumps(wire, indent=2) if options.json else summary(outcome)
    return for_a_reader(lambda: _print(text, outcome.exit_code), outcome.exit_code)


def _print(text: str, exit_code: int) -> int:
    print(text)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
