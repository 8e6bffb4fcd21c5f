"""The command line of `sluice policy`.

    python -m control_api.policy_tools diff OLD NEW        also `sluice policy diff OLD NEW`

Exit codes: 0, 1 for what was asked to fail (errors in files, changes with `--fail-on`), 2 for what
can't be read or analysed.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from control_api.policy_tools import text
from control_api.policy_tools.sources import Unusable, read
from policies.__main__ import add_lint
from policies.analysis.access import Asked
from policies.analysis.difference import by_role, difference
from policies.analysis.names import TooManyClasses
from policies.analysis.rows import access_rows, difference_rows
from policies.definitions.model import SENSITIVITIES, Policy

Rows = list[dict[str, Any]]


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. Returns its exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (Unusable, TooManyClasses) as error:
        print(f"sluice policy: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has gone, such as `head`. Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("sluice policy", description="Checks policy files, offline.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_lint(commands)
    diff = commands.add_parser("diff", help="what a change newly allows and newly denies, exactly")
    diff.add_argument("old", metavar="OLD", help="a directory, a file, or git:REV[:PATH]")
    diff.add_argument("new", metavar="NEW", help="likewise")
    diff.add_argument(
        "--fail-on",
        choices=("widened", "changed"),
        help="exit with 1 if anything is newly allowed, or if anything changes",
    )
    diff.set_defaults(run=_diff)
    who = commands.add_parser("who", help="who may read a source")
    who.add_argument("source", metavar="SOURCE", help="its id, or a pattern")
    who.add_argument("--level", choices=SENSITIVITIES, help="only at this sensitivity")
    who.add_argument("--task", help="only for this task")
    who.set_defaults(run=_who)
    can = commands.add_parser("can", help="what a role may read")
    can.add_argument("role", metavar="ROLE")
    can.add_argument("--agent", metavar="ID", help="only by this agent")
    can.set_defaults(run=_can)
    for each in (who, can):
        each.add_argument(
            "--policies", required=True, metavar="PATH", help="a directory, file, or git:REV:PATH"
        )
    for each in (diff, who, can):
        each.add_argument("--tenant", metavar="ID", help="which of the directory's tenants")
        each.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _diff(options: argparse.Namespace) -> int:
    old, new = (
        by_role(read(source, options.tenant, other))
        for source, other in ((options.old, options.new), (options.new, options.old))
    )
    found = difference_rows(difference(_all(old), _all(new)), old, new)
    allowed, denied = found["newly_allowed"], found["newly_denied"]
    if options.json:
        print(json.dumps(found))
    else:
        for row in allowed:
            _print("+ ", text.change(row, "may newly"))
        for row in denied:
            _print("- ", text.change(row, "may no longer"))
        print(f"{len(allowed)} newly allowed, {len(denied)} newly denied", file=sys.stderr)
    fails = {"widened": bool(allowed), "changed": bool(allowed or denied), None: False}
    return int(fails[options.fail_on])


def _who(options: argparse.Namespace) -> int:
    asked = Asked(tasks=(options.task,) if options.task else (), sources=(options.source,))
    roles = by_role(read(options.policies, options.tenant))
    rows = [
        row
        for role, policies in sorted(roles.items())
        for row in access_rows(role, policies, asked, options.level)
    ]
    return _answer(rows, options)


def _can(options: argparse.Namespace) -> int:
    policies = by_role(read(options.policies, options.tenant)).get(options.role, [])
    asked = Asked(agents=(options.agent,) if options.agent else ())
    return _answer(access_rows(options.role, policies, asked), options)


def _answer(rows: Rows, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({"rows": rows}))
        return 0
    for row in rows:
        _print("", text.access(row))
    if not rows:
        print("no request is allowed", file=sys.stderr)
    return 0


def _all(roles: dict[str, list[Policy]]) -> Iterable[Policy]:
    return (policy for policies in roles.values() for policy in policies)


def _print(mark: str, lines: Iterable[str]) -> None:
    for number, line in enumerate(lines):
        print(f"{mark}{line}" if number == 0 else line)


if __name__ == "__main__":
    sys.exit(main())
