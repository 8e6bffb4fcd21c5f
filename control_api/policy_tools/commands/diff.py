"""`sluice policy diff`: what a change newly allows and newly denies."""

import argparse
import json
import sys
from collections.abc import Iterable

from control_api.policy_tools import text
from control_api.policy_tools.options import AddCommand, add_output
from control_api.policy_tools.sources import read
from policies.analysis.difference import by_role, difference
from policies.analysis.rows import difference_rows
from policies.definitions.model import Policy


def add(add_command: AddCommand) -> None:
    """Add the command `diff`."""
    command = add_command("diff", "what a change newly allows and newly denies, exactly")
    command.add_argument("old", metavar="OLD", help="a directory, a file, or git:REV[:PATH]")
    command.add_argument("new", metavar="NEW", help="likewise")
    command.add_argument(
        "--fail-on",
        choices=("widened", "changed"),
        help="exit with 1 if anything is newly allowed, or if anything changes",
    )
    add_output(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
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
            text.show("+ ", text.change(row, "may newly"))
        for row in denied:
            text.show("- ", text.change(row, "may no longer"))
        print(f"{len(allowed)} newly allowed, {len(denied)} newly denied", file=sys.stderr)
    fails = {"widened": bool(allowed), "changed": bool(allowed or denied), None: False}
    return int(fails[options.fail_on])


def _all(roles: dict[str, list[Policy]]) -> Iterable[Policy]:
    return (policy for policies in roles.values() for policy in policies)
