"""`sluice policy who SOURCE --at TIME`: who could read a source by the policies of then."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from control_api.api_client.connection import RemoteApi
from control_api.policy_tools import text
from control_api.policy_tools.history import Held, beginning, in_force
from control_api.policy_tools.options import typed_time
from control_api.policy_tools.proof import LogKeys, Proof, prove, read_keys
from control_api.policy_tools.service import connect
from control_api.policy_tools.sources import Unusable
from policies.analysis.access import Asked
from policies.analysis.difference import by_role
from policies.analysis.rows import access_rows
from policies.definitions.definition import shown
from policies.definitions.model import Policy
from policies.ground.canonical import rfc3339

_PURGED = "its entry was purged from the audit trail"
_LIMITS = (
    "the agents, keys and bindings of then are not considered; that nothing else was changed in "
    "between is the service's word, which `sluice verify` of an export checks"
)


def run_at(options: argparse.Namespace) -> int:
    """Print who could read the source, and what is proven of the policies that say so. Returns 1 if
    a key was given and one of them is not proven, else 0."""
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
    print(f"At {rfc3339(at)}, by {len(versions)} of {len(held)} policies in force:")
    for each in versions:
        print(f"  {_line(each)}")
    if not rows:
        print("no request was allowed", file=sys.stderr)
    whose = "the key given" if keys.pinned else "the key that the service names (--log-key pins it)"
    print(f"checked with {whose}; {_LIMITS}", file=sys.stderr)
    return code


def rows_of(policies: Sequence[Policy], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Analyse what these policies allow of what the options ask for. Raises `TooManyClasses`."""
    agents, tasks, sources = (
        (each,) if each else () for each in (options.agent, options.task, options.source)
    )
    asked = Asked(agents, tasks, sources)
    return [
        row
        for role, those in sorted(by_role(policies).items())
        if options.role in (None, role)
        for row in access_rows(role, those, asked, options.level)
    ]


def _version(api: RemoteApi, keys: LogKeys, held: Held) -> dict[str, Any]:
    """Show a policy that allowed something, as `--json` does."""
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
