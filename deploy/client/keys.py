"""`sluice keys`: API keys. A secret is shown once, or goes to a file that only its owner reads."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.client.client import Client, Commands, positive
from deploy.client.connection import ApiResponse, segment
from deploy.client.credentials import UnusableCredentials

PATH = "/v1/keys"
COLUMNS = (
    ("KEY", "key_id"),
    ("SCOPE", "scope"),
    ("AGENT", "bound_agent_id"),
    ("ROLES", "permitted_roles"),
    ("EXPIRES", "expires_at"),
    ("NAME", "name"),
)
SCOPES = ("evaluate", "read", "admin", "sidecar")


def declare(parser: argparse.ArgumentParser) -> None:
    """Its actions and their arguments."""
    actions = Commands(parser)
    actions.add_list(_list, "list keys, newest first, without their secrets")
    made = actions.add("create", _create, "create a key and show its secret this once")
    made.add_argument("--name", required=True, help="what it is for")
    made.add_argument("--scope", required=True, choices=SCOPES)
    lifetime = made.add_mutually_exclusive_group()
    lifetime.add_argument("--expires-days", type=positive, metavar="N", help="1 to 3650")
    lifetime.add_argument("--never-expires", action="store_true")
    rotated = actions.add("rotate", _rotate, "replace a key; the old one stops working at once")
    for each in (made, rotated):
        each.add_argument("--out", metavar="FILE", help="write the secret there (0600), print none")
    ended = actions.add("revoke", _revoke, "revoke a key")
    bound = actions.add("bind", _bind, "bind a key to an agent or to roles")
    agent = bound.add_mutually_exclusive_group()
    agent.add_argument("--agent", metavar="AGENT", help="the only agent that may use it")
    agent.add_argument("--no-agent", action="store_true", help="any agent may")
    roles = bound.add_mutually_exclusive_group()
    roles.add_argument("--role", action="append", help="a role it may be used for; repeatable")
    roles.add_argument("--no-roles", action="store_true", help="every role may")
    for each in (rotated, ended, bound):
        each.add_argument("key_id", metavar="KEY_ID")


def revoke(client: Client, key_id: str) -> int:
    """Revokes a key."""
    answer = client.api.ask("DELETE", f"{PATH}/{segment(key_id)}")
    return client.did(answer, f"key {key_id} is revoked")


def _list(client: Client, chosen: argparse.Namespace) -> int:
    return client.list(PATH, {}, chosen, COLUMNS)


def _create(client: Client, chosen: argparse.Namespace) -> int:
    body: dict[str, Any] = {"name": chosen.name, "scope": chosen.scope}
    if chosen.expires_days is not None or chosen.never_expires:
        body["expires_days"] = chosen.expires_days
    with _place(chosen.out) as file:
        return _tell(client, client.api.ask("POST", PATH, body=body), chosen.out, file)


def _rotate(client: Client, chosen: argparse.Namespace) -> int:
    path = f"{PATH}/{segment(chosen.key_id)}/rotate"
    with _place(chosen.out) as file:
        return _tell(client, client.api.ask("POST", path), chosen.out, file)


def _revoke(client: Client, chosen: argparse.Namespace) -> int:
    return revoke(client, chosen.key_id)


def _bind(client: Client, chosen: argparse.Namespace) -> int:
    body: dict[str, Any] = {}
    if chosen.agent is not None or chosen.no_agent:
        body["bound_agent_id"] = chosen.agent
    if chosen.role is not None or chosen.no_roles:
        body["permitted_roles"] = chosen.role
    if not body:
        raise UnusableCredentials(
            "nothing to change: give --agent, --no-agent, --role or --no-roles"
        )
    path = f"{PATH}/{segment(chosen.key_id)}/binding"
    answer = client.api.ask("PATCH", path, body=body)
    return client.did(answer, f"key {chosen.key_id} is bound")


@contextlib.contextmanager
def _place(name: str | None) -> Iterator[int | None]:
    """An empty file for the secret, made before the key is: one that has nowhere to go would be
    lost. Removed again where the key was not made."""
    if name is None:
        yield None
        return
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UnusableCredentials(f"--out `{name}`: {error.strerror}") from error
    try:
        yield file
    except BaseException:
        if not os.fstat(file).st_size:
            Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def _tell(client: Client, answer: ApiResponse, name: str | None, file: int | None) -> int:
    made = dict(answer.body)
    if file is not None:
        os.write(file, f"{made['key']}\n".encode())
        os.fsync(file)
        del made["key"]
    client.out.members(made)
    if file is not None:
        print(f"sluice: the secret is in `{name}` (0600)", file=sys.stderr)
    else:
        print("sluice: the secret is shown this once", file=sys.stderr)
    client.tell_revision(answer)
    return 0
