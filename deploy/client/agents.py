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
    "return": ("draft", "return an agent that is pending approval to draft"),
    "approve": ("approved", "approve a pending agent, or a suspended one again"),
    "suspend": ("suspended", "suspend an approved agent: it is denied until approved again"),
    "deprecate": ("deprecated", "take an agent out of service permanently"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = Commands(parser)
    listed = actions.add_list(_list, "list agents, newest first")
    listed.add_argument("--status", help="only agents with this status")
    listed.add_argument("--role", help="only agents with this role")
    listed.add_argument("--owner", help="only agents of this owner")
    listed.add_argument("--framework", help="only agents built with this framework")
    shown = actions.add("show", _show, "show an agent and its activity in the last 7 days")
    shown.add_argument("agent_id", metavar="AGENT")
    made = actions.add("register", _register, "register an agent, as a draft")
    made.add_argument("--role", required=True, help="the role that it acts in")
    made.add_argument("--id", help="its id; by default the control API assigns one")
    made.add_argument("--name", help="its display name")
    made.add_argument("--description", help="its purpose")
    made.add_argument("--owner", help="the person or team responsible for it")
    made.add_argument("--framework", help="the framework that it is built with")
    made.add_argument(
        "--permitted-role", action="append", metavar="ROLE", help="a role it may use; repeatable"
    )
    made.add_argument("--key", metavar="KEY_ID", help="the only key that it may use")
    for name, (status, line) in MOVES.items():
        move = actions.add(name, _move, line)
        move.add_argument("agent_id", metavar="AGENT")
        move.set_defaults(status=status)


def set_status(client: Client, agent_id: str, status: str) -> int:
    """Change an agent's status."""
    path = f"{PATH}/{segment(agent_id)}/status"
    return client.report(
        client.api.request("PATCH", path, body={"status": status}), f"agent {agent_id} is {status}"
    )


def _list(client: Client, options: argparse.Namespace) -> int:
    query = {
        "status": options.status,
        "agent_role": options.role,
        "owner": options.owner,
        "framework": options.framework,
    }
    return client.list(PATH, query, options, COLUMNS)


def _show(client: Client, options: argparse.Namespace) -> int:
    return client.show(f"{PATH}/{segment(options.agent_id)}")


def _register(client: Client, options: argparse.Namespace) -> int:
    given = {
        "agent_role": options.role,
        "agent_id": options.id,
        "display_name": options.name,
        "description": options.description,
        "owner": options.owner,
        "framework": options.framework,
        "permitted_roles": options.permitted_role,
        "bound_key_id": options.key,
    }
    body = {key: value for key, value in given.items() if value is not None}
    response = client.api.request("POST", PATH, body=body)
    agent = response.body
    return client.report(response, f"agent {agent['agent_id']} is {agent['status']}")


def _move(client: Client, options: argparse.Namespace) -> int:
    return set_status(client, options.agent_id, options.status)
