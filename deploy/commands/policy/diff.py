"""`sluice policy diff`: what a change newly allows and newly denies, between files, or between
files and what is in force in a service."""

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any

from deploy.commands.policy import text
from deploy.commands.policy.service import add_service, connect
from deploy.commands.policy.sources import Unusable, body, read
from deploy.commands.policy.text import AddCommand, add_output
from policies.analysis.difference import by_role, difference
from policies.analysis.rows import difference_rows
from policies.definitions.model import Policy

LIVE = "live"
ROUTE = "/v1/policies/diff"
SECONDS = 90.0
"""How long an answer may take: a little longer than the service allows itself."""


def add(add_command: AddCommand) -> None:
    """Add the command `diff`."""
    command = add_command("diff", "what a change newly allows and newly denies, exactly")
    command.add_argument("old", metavar="OLD", help="a directory, a file, git:REV[:PATH], or live")
    command.add_argument(
        "new", metavar="NEW", help="likewise; `live` is what is in force in a service"
    )
    command.add_argument(
        "--fail-on",
        choices=("widened", "changed"),
        help="exit with 1 if anything is newly allowed, or if anything changes",
    )
    add_output(command)
    add_service(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    found = _with_live(options) if LIVE in (options.old, options.new) else _of_files(options)
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


def _of_files(options: argparse.Namespace) -> dict[str, Any]:
    old, new = (
        by_role(read(source, options.tenant, other))
        for source, other in ((options.old, options.new), (options.new, options.old))
    )
    return difference_rows(difference(_all(old), _all(new)), old, new)


def _with_live(options: argparse.Namespace) -> dict[str, Any]:
    """The service compares, so that what is in force is that of one moment."""
    files = options.new if options.old == LIVE else options.old
    if files == LIVE:
        raise Unusable("`live` and `live` are the same: name files as OLD or NEW")
    policies = [body(each) for each in read(files, options.tenant)]
    api = connect(options)
    found: dict[str, Any] = api.ask("POST", ROUTE, body={"policies": policies}, seconds=SECONDS)
    return found if options.old == LIVE else _turned(found)


def _turned(found: dict[str, Any]) -> dict[str, Any]:
    """The difference the other way round: what one way newly allows, the other newly denies."""
    return {
        name: [row | {"before": row["after"], "after": row["before"]} for row in found[other]]
        for name, other in (
            ("newly_allowed", "newly_denied"),
            ("newly_denied", "newly_allowed"),
        )
    }


def _all(roles: dict[str, list[Policy]]) -> Iterable[Policy]:
    return (policy for policies in roles.values() for policy in policies)
