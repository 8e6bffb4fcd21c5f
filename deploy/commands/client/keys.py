"""`sluice keys`: lists, creates, rotates, binds and revokes API keys. A new key's secret is printed
once, or written to a file that only its owner can read."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from deploy.commands.client.client import Client, Commands, positive
from deploy.commands.client.output import new_file
from policies.ground.process.api_client import ApiResponse, UnusableArguments, segment

PATH = "/v1/keys"
COLUMNS = (
    ("KEY", "key_id"),
    ("SCOPE", "scope"),
    ("AGENT", "bound_agent_id"),
    ("FOR-AGENT", "agent_ids"),
    ("ROLES", "permitted_roles"),
    ("EXPIRES", "expires_at"),
    ("NAME", "name"),
)
SCOPES = ("evaluate", "read", "admin", "sidecar")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    line = (
        "list the keys that are not revoked, newest first, without their secrets; `sluice changes "
        "--type key --action revoked` lists who revoked which others, and when"
    )
    actions.add_list(PATH, COLUMNS, line, {})
    made = actions.add("create", _create, "create a key and show its secret, this once only")
    made.add_argument("--name", required=True, help="its purpose")
    made.add_argument("--scope", required=True, choices=SCOPES)
    made.add_argument("--agent", metavar="AGENT", help="the only agent that may use it")
    made.add_argument(
        "--role", action="append", metavar="ROLE", help="a role it may be used for; repeatable"
    )
    _add_speaking(made)
    lifetime = made.add_mutually_exclusive_group()
    lifetime.add_argument("--expires-days", type=positive, metavar="N", help="1 to 3650")
    lifetime.add_argument("--never-expires", action="store_true")
    rotated = actions.add("rotate", _rotate, "replace a key; the old one stops working at once")
    for each in (made, rotated):
        each.add_argument(
            "--out", metavar="FILE", help="write the secret to a new file (0600), don't print it"
        )
    ended = actions.add("revoke", _revoke, "revoke a key")
    bound = actions.add("bind", _bind, "bind a key to an agent or to roles")
    agent = bound.add_mutually_exclusive_group()
    agent.add_argument("--agent", metavar="AGENT", help="the only agent that may use it")
    agent.add_argument("--no-agent", action="store_true", help="let any agent use it")
    roles = bound.add_mutually_exclusive_group()
    roles.add_argument("--role", action="append", help="a role it may be used for; repeatable")
    roles.add_argument("--no-roles", action="store_true", help="let it be used for every role")
    _add_speaking(bound)
    bound.add_argument(
        "--any-free-sidecar", action="store_true", help="admit sidecar ids that no other key uses"
    )
    for each in (rotated, ended, bound):
        each.add_argument("key_id", metavar="KEY_ID")


def _add_speaking(parser: argparse.ArgumentParser) -> None:
    """Add the options that restrict a key of scope `sidecar`: the agents that the sidecar may
    decide for, and the sidecars that may use the key."""
    parser.add_argument(
        "--for-agent",
        action="append",
        metavar="AGENT",
        help="an agent that a sidecar's key speaks for, with the wildcards * and ?; repeatable",
    )
    parser.add_argument(
        "--for-sidecar",
        action="append",
        metavar="ID",
        help="a sidecar that may have the key, with wildcards; without it, any id that no other "
        "live key uses",
    )


def _speaking(options: argparse.Namespace) -> dict[str, Any]:
    given = {"agent_ids": options.for_agent, "sidecar_ids": options.for_sidecar}
    return {name: value for name, value in given.items() if value is not None}


def revoke(client: Client, key_id: str) -> int:
    response = client.api.request("DELETE", f"{PATH}/{segment(key_id)}")
    return client.report(response, f"key {key_id} is revoked")


def _create(client: Client, options: argparse.Namespace) -> int:
    body: dict[str, Any] = {"name": options.name, "scope": options.scope, **_speaking(options)}
    # Null means that the key never expires; without the field, the API applies its default.
    if options.expires_days is not None or options.never_expires:
        body["expires_days"] = options.expires_days
    if options.agent is not None:
        body["bound_agent_id"] = options.agent
    if options.role is not None:
        body["permitted_roles"] = options.role
    # The file comes first: the API shows a secret only once. If we die after the request, the key
    # exists and its secret is lost; `keys revoke` ends it.
    with new_file(options.out) as file:
        made = client.api.request("POST", PATH, body=body)
        code = print_secret(client, made, "key", options.out, file)
    client.print_revision(made)
    return code


def _rotate(client: Client, options: argparse.Namespace) -> int:
    path = f"{PATH}/{segment(options.key_id)}/rotate"
    # The file comes first: the API shows a secret only once.
    with new_file(options.out) as file:
        made = client.api.request("POST", path)
        code = print_secret(client, made, "key", options.out, file)
    client.print_revision(made)
    return code


def _revoke(client: Client, options: argparse.Namespace) -> int:
    return revoke(client, options.key_id)


def _bind(client: Client, options: argparse.Namespace) -> int:
    body: dict[str, Any] = _speaking(options)
    if options.any_free_sidecar:
        body["sidecar_ids"] = None
    # `--no-agent` and `--no-roles` send null, which lifts the restriction.
    if options.agent is not None or options.no_agent:
        body["bound_agent_id"] = options.agent
    if options.role is not None or options.no_roles:
        body["permitted_roles"] = options.role
    if not body:
        raise UnusableArguments(
            "nothing to change; give --agent, --no-agent, --role, --no-roles, --for-agent or "
            "--for-sidecar"
        )
    path = f"{PATH}/{segment(options.key_id)}/binding"
    response = client.api.request("PATCH", path, body=body)
    return client.report(response, f"key {options.key_id} is bound")


def print_secret(
    client: Client, response: ApiResponse, member: str, name: str | None, file: int | None
) -> int:
    """Print the object that the API created, with its secret in the field `member`. If `file` is an
    open file, the secret is written to it instead of printed; `name` is that file's name. Returns
    the exit code 0."""
    made = dict(response.body)
    if file is not None:
        os.write(file, f"{made[member]}\n".encode())
        os.fsync(file)
        # The secret is on disk now: don't print it.
        del made[member]
    client.out.members(made)
    if file is not None:
        print(f"sluice: the secret is in `{name}` (0600)", file=sys.stderr)
    else:
        print("sluice: the secret is shown only this once; store it now", file=sys.stderr)
    return 0
