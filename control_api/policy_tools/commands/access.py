"""`sluice policy who` and `sluice policy can`: what policies allow, in files or in a service."""

import argparse
import json
import sys
from typing import Any

from control_api.policy_tools import text
from control_api.policy_tools.commands.access_at import rows_of, run_at
from control_api.policy_tools.options import AddCommand, add_output
from control_api.policy_tools.service import add_service, connect, names_service
from control_api.policy_tools.sources import Unusable, read
from policies.definitions.model import SENSITIVITIES
from policies.ground.typed_time import ACCEPTED

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
    command.add_argument(
        "--at",
        metavar="TIME",
        help=f"who could read it then, by the policies that the audit trail proves: {ACCEPTED}",
    )
    command.add_argument(
        "--log-key",
        metavar="KEY",
        help="with --at: the public key that signs the log, or a file with it (`sluice log-key`); "
        "default: the one that the service names",
    )
    _add_common(command)
    command.set_defaults(run=_run, role=None)


def add_can(add_command: AddCommand) -> None:
    """Add the command `can`."""
    command = add_command("can", "what a role may read")
    command.add_argument("role", metavar="ROLE")
    _add_common(command)
    command.set_defaults(run=_run, source=None, at=None, log_key=None)


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
    if options.at is not None:
        return run_at(options)
    if options.log_key:
        raise Unusable("--log-key belongs to --at")
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
    return rows_of(read(options.policies, options.tenant), options)


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
