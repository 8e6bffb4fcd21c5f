"""`sluice policy who` and `sluice policy can`: what the policies allow."""

import argparse
import json
import sys
from typing import Any

from control_api.policy_tools import text
from control_api.policy_tools.options import AddCommand, add_output
from control_api.policy_tools.sources import read
from policies.analysis.access import Asked
from policies.analysis.difference import by_role
from policies.analysis.rows import access_rows
from policies.definitions.model import SENSITIVITIES


def add_who(add_command: AddCommand) -> None:
    """Add the command `who`."""
    command = add_command("who", "who may read a source")
    command.add_argument("source", metavar="SOURCE", help="its id, or a pattern")
    command.add_argument("--level", choices=SENSITIVITIES, help="only at this sensitivity")
    command.add_argument("--task", help="only for this task")
    _add_common(command)
    command.set_defaults(run=_who)


def add_can(add_command: AddCommand) -> None:
    """Add the command `can`."""
    command = add_command("can", "what a role may read")
    command.add_argument("role", metavar="ROLE")
    command.add_argument("--agent", metavar="ID", help="only by this agent")
    _add_common(command)
    command.set_defaults(run=_can)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--policies", required=True, metavar="PATH", help="a directory, a file, or git:REV:PATH"
    )
    add_output(command)


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


def _answer(rows: list[dict[str, Any]], options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({"rows": rows}))
        return 0
    for row in rows:
        text.show("", text.access(row))
    if not rows:
        print("no request is allowed", file=sys.stderr)
    return 0
