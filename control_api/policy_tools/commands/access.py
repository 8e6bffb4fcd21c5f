"""`sluice policy who` and `sluice policy can`: what policies allow, in files or in a service."""

import argparse
import json
import sys
from typing import Any

from control_api.policy_tools import text
from control_api.policy_tools.options import AddCommand, add_output
from control_api.policy_tools.service import add_service, connect, names_service
from control_api.policy_tools.sources import Unusable, read
from policies.analysis.access import Asked
from policies.analysis.difference import by_role
from policies.analysis.rows import access_rows
from policies.definitions.model import SENSITIVITIES

ROUTE = "/v1/policies/access"
SECONDS = 90.0
"""How long an answer may take: a little longer than the service allows itself."""
_NO_REGISTRY = (
    "the registry was not asked: of these agents, only registered and approved ones may read "
    "(--url asks a service)"
)


def add_who(add_command: AddCommand) -> None:
    """Add the command `who`."""
    command = add_command("who", "who may read a source")
    command.add_argument("source", metavar="SOURCE", help="its id, or a pattern")
    _add_common(command)
    command.set_defaults(run=_run, role=None)


def add_can(add_command: AddCommand) -> None:
    """Add the command `can`."""
    command = add_command("can", "what a role may read")
    command.add_argument("role", metavar="ROLE")
    _add_common(command)
    command.set_defaults(run=_run, source=None)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--agent", metavar="ID", help="only by this agent")
    command.add_argument("--level", choices=SENSITIVITIES, help="only at this sensitivity")
    command.add_argument("--task", help="only for this task")
    command.add_argument(
        "--policies", metavar="PATH", help="a directory, a file, or git:REV:PATH, without a service"
    )
    add_output(command)
    add_service(command)


def _run(options: argparse.Namespace) -> int:
    if options.policies and options.url:
        raise Unusable("--policies and --url: give one of the two")
    if options.policies:
        rows = _in_files(options)
        print(_NO_REGISTRY, file=sys.stderr)
    elif names_service(options):
        rows = _in_service(options)
    else:
        raise Unusable("name the policies, --policies PATH, or the service, --url URL")
    if options.json:
        print(json.dumps({"rows": rows}))
        return 0
    for row in rows:
        text.show("", text.access(row))
    if not rows:
        print("no request is allowed", file=sys.stderr)
    return 0


def _in_files(options: argparse.Namespace) -> list[dict[str, Any]]:
    agents, tasks, sources = (
        (each,) if each else () for each in (options.agent, options.task, options.source)
    )
    asked = Asked(agents, tasks, sources)
    roles = by_role(read(options.policies, options.tenant))
    return [
        row
        for role, policies in sorted(roles.items())
        if options.role in (None, role)
        for row in access_rows(role, policies, asked, options.level)
    ]


def _in_service(options: argparse.Namespace) -> list[dict[str, Any]]:
    query = {
        "source_id": options.source,
        "agent_role": options.role,
        "agent_id": options.agent,
        "task": options.task,
        "level": options.level,
    }
    rows: list[dict[str, Any]] = connect(options).ask("GET", ROUTE, query, seconds=SECONDS)["rows"]
    return rows
