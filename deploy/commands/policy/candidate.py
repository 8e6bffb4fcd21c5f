"""`sluice policy candidate`: manages a candidate, which is a whole policy set that a service
evaluates beside the active one without enforcing it."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from deploy.commands.policy import text
from deploy.commands.policy.service import add_service, connect
from deploy.commands.policy.sources import body, read
from deploy.commands.policy.text import AddCommand
from policies.definitions.definition import shown
from policies.ground.process.api_client import ControlApiClient, RequestRefused, segment

ROUTE = "/v1/policies/candidates"
CONFLICT = 409
_COUNTS = ("decided", "same", "newly_denied", "newly_allowed", "error")

Answer = Mapping[str, Any]


def add(add_command: AddCommand) -> None:
    """Add the command `candidate` and its actions."""
    command = add_command("candidate", "try a policy set beside the active one, and promote it")
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add_action(
        name: str, line: str, ask: Callable[[argparse.Namespace, ControlApiClient], int]
    ) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=line)
        if name != "list":
            action.add_argument("name", metavar="NAME")
        add_service(action)
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(run=lambda options: ask(options, connect(options)))
        return action

    publish = add_action("publish", "publish policies as a candidate, or replace it", _publish)
    publish.add_argument("policies", metavar="PATH", help="a directory, a file, or git:REV:PATH")
    publish.add_argument("--tenant", metavar="ID", help="which of the directory's tenants")
    add_action("list", "list the candidates with their counts", _list)
    add_action("show", "what a candidate decides otherwise", _show)
    add_action("promote", "make a candidate the active policy set", _promote)
    add_action("drop", "drop a candidate", _drop)


def _route(options: argparse.Namespace) -> str:
    return f"{ROUTE}/{segment(options.name)}"


def _publish(options: argparse.Namespace, api: ControlApiClient) -> int:
    policies = [body(each) for each in read(options.policies, options.tenant)]
    done = api.request("PUT", _route(options), body={"policies": policies}).body
    said = f"{shown(done['name'])} is a candidate of {done['policies']:,} policies"
    return _answer(options, done, f"{said}, from revision {done['revision']:,}")


def _list(options: argparse.Namespace, api: ControlApiClient) -> int:
    found = api.request("GET", ROUTE).body
    if options.json:
        print(json.dumps(found))
        return 0
    for each in found:
        print(f"{shown(each['name'])}: {_counts(each)}")
    if not found:
        print("there are no candidates", file=sys.stderr)
    return 0


def _show(options: argparse.Namespace, api: ControlApiClient) -> int:
    found = api.request("GET", _route(options)).body
    if options.json:
        print(json.dumps(found))
        return 0
    for group in found["groups"]:
        text.show("", text.group(group))
    print(_counts(found), file=sys.stderr)
    return 0


def _promote(options: argparse.Namespace, api: ControlApiClient) -> int:
    try:
        done = api.request("POST", f"{_route(options)}/promote").body
    except RequestRefused as refused:
        if refused.status != CONFLICT:
            raise
        print(f"sluice policy: {refused}", file=sys.stderr)  # a guardrail, and what would break it
        return 1
    parts = ("added", "updated", "unchanged", "removed")
    said = ", ".join(f"{len(done[part]):,} {part}" for part in parts)
    return _answer(options, done, f"{shown(done['name'])} is in force: {said}")


def _drop(options: argparse.Namespace, api: ControlApiClient) -> int:
    done = api.request("DELETE", _route(options)).body
    return _answer(options, done, f"{shown(options.name)} is dropped")


def _counts(found: Answer) -> str:
    return ", ".join(f"{found[name]:,} {name.replace('_', ' ')}" for name in _COUNTS)


def _answer(options: argparse.Namespace, done: Any, said: str) -> int:
    print(json.dumps(done) if options.json else said)
    return 0
