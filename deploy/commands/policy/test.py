"""`sluice policy test`: decides the cases in test files, compares each decision with the expected
one, and lists the policies that no case covers."""

import argparse
import json
import math
import sys
import time
from pathlib import Path

from deploy.commands.policy import testing
from deploy.commands.policy import testing as changes
from deploy.commands.policy import testing as output
from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.testing import Outcome, Report
from deploy.commands.policy.text import AddCommand
from policies.definitions.definition import LoadError


def add(add_command: AddCommand) -> None:
    """Add the command `test`. Its exit codes: 0; 1 if a case fails, or the coverage is too low; 2
    if a file can't be used."""
    command = add_command("test", "decide the cases in files of tests")
    command.add_argument("path", metavar="PATH", type=Path, nargs="?", default=Path())
    command.add_argument("--coverage", action="store_true", help="list what no case depends on")
    command.add_argument(
        "--min-coverage",
        type=_percent,
        metavar="N",
        help="exit with 1 if less than N per cent of the policies and entries are covered",
    )
    command.add_argument("--junit", type=Path, metavar="FILE", help="write a report for CI systems")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--watch", action="store_true", help="run again whenever a file changes")
    command.epilog = "PATH: policies, a tenant's folder, or one file of tests; default: here"
    command.set_defaults(run=_run)


def _percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 0 to 100")
    return number


def _run(options: argparse.Namespace) -> int:
    return _watch(options) if options.watch else _once(options)


def _watch(options: argparse.Namespace) -> int:
    """Run the tests, and again after each change of a file, until Ctrl-C. Returns the exit code of
    the last run."""
    folder = testing.watched(options.path)
    code = 0
    try:
        while True:
            # Looked at before the files are read: what changes meanwhile is run next.
            known = changes.state(folder)
            try:
                code = _once(options)
            except Unusable as error:
                print(f"sluice policy: {error}", file=sys.stderr)
                code = 2
            sys.stdout.flush()
            print(f"waiting for a change below `{folder}`; Ctrl-C ends", file=sys.stderr)
            changes.wait_for_change(folder, known, time.sleep)
    except KeyboardInterrupt:
        return code


def _once(options: argparse.Namespace) -> int:
    report = None if options.junit is None else Report()
    try:
        found = testing.read_tenants(options.path)
    except LoadError as error:
        for fault in error.faults:
            print(f"error: {fault}", file=sys.stderr)
            if report is not None:
                report.unreadable(fault)
        _write(report, options)
        return 2
    outcome = Outcome(report)
    outcome.decide(found, coverage=options.coverage or options.min_coverage is not None)
    _write(report, options)
    _print(outcome, options)
    low = options.min_coverage is not None and outcome.percent < options.min_coverage
    return int(bool(outcome.failures) or low)


def _write(report: Report | None, options: argparse.Namespace) -> None:
    if report is not None:
        report.write(options.junit)


def _print(outcome: Outcome, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(_json(outcome)))
    else:
        for failure in outcome.failures:
            print(output.failure_line(failure))
        for row in outcome.uncovered() if options.coverage else ():
            print(output.uncovered_line(row))
    failed = len(outcome.failures)
    # On standard error, so that standard output holds the findings alone.
    print(
        f"{outcome.cases} cases, {outcome.cases - failed} passed, {failed} failed", file=sys.stderr
    )
    if outcome.coverage:
        least = (
            "" if options.min_coverage is None else f", at least {options.min_coverage:g} % asked"
        )
        share = f"{outcome.covered} of {outcome.parts} policies and entries"
        print(f"coverage {outcome.percent:.1f} %: {share}{least}", file=sys.stderr)


def _json(outcome: Outcome) -> output.Row:
    failed = len(outcome.failures)
    found: output.Row = {
        "cases": outcome.cases,
        "passed": outcome.cases - failed,
        "failed": failed,
        "failures": outcome.failures,
    }
    if outcome.coverage:
        found["coverage"] = {
            "percent": outcome.percent,
            "covered": outcome.covered,
            "parts": outcome.parts,
            "uncovered": list(outcome.uncovered()),
        }
    return found
