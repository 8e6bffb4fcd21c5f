"""`sluice policy who` (who may read a source) and `sluice policy can` (what a role may read), by
the policies in files, in a service, or in force at a past time."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from deploy.commands.policy import text
from deploy.commands.policy.service import (
    LogKeys,
    PolicyInForce,
    Proof,
    add_service,
    beginning,
    connect,
    in_force,
    names_service,
    prove,
    read_keys,
)
from deploy.commands.policy.sources import Unusable, read
from deploy.commands.policy.text import AddCommand, add_output, typed_time
from policies.analysis.access import AccessQuery
from policies.analysis.difference import by_role
from policies.analysis.rows import access_rows
from policies.definitions.definition import shown
from policies.definitions.model import SENSITIVITIES, Policy
from policies.ground.canonical import rfc3339
from policies.ground.clock import ACCEPTED
from policies.ground.process.api_client import ControlApiClient

_PURGED = "its entry was purged from the audit trail"
_LIMITS = (
    "the agents, keys and bindings of then are not considered; that nothing else was changed in "
    "between is the service's word, which `sluice verify` of an export checks"
)


def run_at(options: argparse.Namespace) -> int:
    """Run `who` with `--at`: print the roles that could read the source at that time, and for each
    policy that allowed it the proof from the audit trail. Returns 1 if `--log-key` was given and
    one of these policies is not proven, else 0."""
    if options.policies:
        raise Unusable("--at asks a service for the policies of then: leave --policies out")
    at = typed_time(options, "--at", options.at)
    if at > options.clock.now():
        raise Unusable(f"--at: `{options.at:.40}` is still to come")
    api = connect(options)
    keys = read_keys(api, options.log_key)
    held = in_force(api, at)
    if not held and (begin := beginning(api, at)) is not None:
        raise Unusable(f"--at: the audit trail begins at {begin}: nothing is known of before")
    rows = rows_of([each.policy() for each in held], options)
    named = {name for row in rows for name in row["policies"]}
    versions = [_version(api, keys, each) for each in held if each.body["name"] in named]
    code = 1 if keys.pinned and not all(each["proven"] for each in versions) else 0
    if options.json:
        answer = {"at": rfc3339(at), "rows": rows, "versions": versions}
        print(json.dumps({**answer, "key_pinned": keys.pinned}))
        return code
    for row in rows:
        text.show("", text.access(row))
    if rows:
        print(f"At {rfc3339(at)}, by {len(versions)} of {len(held)} policies in force:")
    else:
        nothing_allowed = text.nothing_allowed(vars(options), "could")
        print(f"At {rfc3339(at)}, {nothing_allowed} by the policies in force")
    for each in versions:
        print(f"  {_line(each)}")
    whose = "the key given" if keys.pinned else "the key that the service names (--log-key pins it)"
    print(f"checked with {whose}; {_LIMITS}", file=sys.stderr)
    return code


def rows_of(policies: Sequence[Policy], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each group of sources that these policies allow, narrowed to the role,
    agent, task, source and level that the options name. Raises `TooManyClasses`."""
    agents, tasks, sources = (
        (each,) if each else () for each in (options.agent, options.task, options.source)
    )
    query = AccessQuery(agents, tasks, sources)
    return [
        row
        for role, those in sorted(by_role(policies).items())
        if options.role in (None, role)
        for row in access_rows(role, those, query, options.level)
    ]


def _version(api: ControlApiClient, keys: LogKeys, held: PolicyInForce) -> dict[str, Any]:
    """Return one policy that allowed the access, with the version and the change that put it in
    force and whether the audit trail proves these; in the form that `--json` prints."""
    change = held.change
    proof = Proof(why=_PURGED) if change is None else prove(api, keys, change, held.body)
    return {
        "policy_name": held.body["name"],
        "policy_id": held.policy_id,
        "version": proof.version,
        "since": None if change is None else change["timestamp"],
        "changed_by": None if change is None else change["actor"],
        "proven": proof.why is None,
        "why_not": proof.why,
        "seq": proof.seq,
        "checkpoint_size": proof.checkpoint_size,
    }


def _line(version: dict[str, Any]) -> str:
    name = shown(version["policy_name"])
    since = "before the oldest entry" if version["since"] is None else version["since"]
    if not version["proven"]:
        return f"{name}, since {since}: NOT PROVEN: {version['why_not']}"
    return (
        f"{name} version {version['version']}, since {since}, by {version['changed_by']}: proven "
        f"by entry {version['seq']} in the signed checkpoint of {version['checkpoint_size']:,} "
        "entries"
    )


ROUTE = "/v1/policies/access"
SECONDS = 90.0
"""The timeout of a request, in seconds: a little longer than the service allows itself."""
_NO_REGISTRY = (
    "the registry was not asked: of these agents, only registered and approved ones may read "
    "(--url asks a service)"
)


def add_who(add_command: AddCommand) -> None:
    """Add the command `who` and its options."""
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
    """Add the command `can` and its options."""
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
        print(text.nothing_allowed(vars(options), "may"), file=sys.stderr)
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
    response = connect(options).request("GET", ROUTE, query, seconds=SECONDS)
    rows: list[dict[str, Any]] = response.body["rows"]
    return rows
