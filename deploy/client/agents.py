"""`sluice agents`: the registry of agents."""

from __future__ import annotations

import argparse

from deploy.client.client import Client, Commands
from deploy.client.connection import segment

PATH = "/v1/agents"
COLUMNS = (
    ("AGENT", "agent_id"),
    ("STATUS", "status"),
    ("ROLE", "agent_role"),
    ("OWNER", "owner"),
    ("FRAMEWORK", "framework"),
    ("NAME", "display_name"),
)
MOVES = {
    "submit": ("pending_approval", "submit a draft for approval"),
    "return": ("draft", "send an agent that is pending approval back to draft"),
    "approve": ("approved", "approve a pending agent, or let a suspended one go on"),
    "suspend": ("suspended", "suspend an approved agent: it is denied until approved again"),
    "deprecate": ("deprecated", "take an agent out of service, for good"),
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Its actions and their arguments."""
    actions = Commands(parser)
    listed = actions.add_list(_list, "list agents, newest first")
    listed.add_argument("--status", help="only those of this status")
    listed.add_argument("--role", help="only those of this role")
    listed.add_argument("--owner", help="only those of this owner")
    listed.add_argument("--framework", help="only those of this framework")
    shown = actions.add("show", _show, "show an agent and what it did in the last 7 days")
    shown.add_argument("agent_id", metavar="AGENT")
    made = actions.add("register", _register, "register an agent, as a draft")
    made.add_argument("--role", required=True, help="the role that it acts in")
    made.add_argument("--id", help="its id; assigned where none is given")
    made.add_argument("--name", help="its name, for people")
    made.add_argument("--description", help="what it is for")
    made.add_argument("--owner", help="who answers for it")
    made.add_argument("--framework", help="what it is built with")
    made.add_argument(
        "--permitted-role", action="append", metavar="ROLE", help="a role it may use; repeatable"
    )
    made.add_argument("--key", metavar="KEY_ID", help="the one key that it may use")
    for name, (status, line) in MOVES.items():
        move = actions.add(name, _move, line)
        move.add_argument("agent_id", metavar="AGENT")
        move.set_defaults(status=status)


def set_status(client: Client, agent_id: str, status: str) -> int:
    """Moves an agent to a status."""
    path = f"{PATH}/{segment(agent_id)}/status"
    return client.did(
        client.api.ask("PATCH", path, body={"status": status}), f"agent {agent_id} is {status}"
    )


def _list(client: Client, chosen: argparse.Namespace) -> int:
    query = {
        "status": chosen.status,
        "agent_role": chosen.role,
        "owner": chosen.owner,
        "framework": chosen.framework,
    }
    return client.list(PATH, query, chosen, COLUMNS)


def _show(client: Client, chosen: argparse.Namespace) -> int:
    return client.show(f"{PATH}/{segment(chosen.agent_id)}")


def _register(client: Client, chosen: argparse.Namespace) -> int:
    given = {
        "agent_role": chosen.role,
        "agent_id": chosen.id,
        "display_name": chosen.name,
        "description": chosen.description,
        "owner": chosen.owner,
        "framework": chosen.framework,
        "permitted_roles": chosen.permitted_role,
        "bound_key_id": chosen.key,
    }
    body = {key: value for key, value in given.items() if value is not None}
    answer = client.api.ask("POST", PATH, body=body)
    agent = answer.body
    return client.did(answer, f"agent {agent['agent_id']} is {agent['status']}")


def _move(client: Client, chosen: argparse.Namespace) -> int:
    return set_status(client, chosen.agent_id, chosen.status)
