"""`sluice agents`: lists, shows and registers agents, and changes their status."""

from __future__ import annotations

import argparse

from deploy.commands.client.client import Client, Commands, add_fields, given
from policies.ground.process.api_client import segment

PATH = "/v1/agents"
COLUMNS = (
    ("AGENT", "agent_id"),
    ("STATUS", "status"),
    ("ROLE", "agent_role"),
    ("OWNER", "owner"),
    ("FRAMEWORK", "framework"),
    ("NAME", "display_name"),
)
FILTERS = {
    "status": ("status", "only agents with this status"),
    "role": ("agent_role", "only agents with this role"),
    "owner": ("owner", "only agents of this owner"),
    "framework": ("framework", "only agents built with this framework"),
}
DESCRIPTION = {
    "id": ("agent_id", "its id; by default the control API assigns one"),
    "name": ("display_name", "its display name"),
    "description": ("description", "its purpose"),
    "owner": ("owner", "the person or team responsible for it"),
    "framework": ("framework", "the framework that it is built with"),
    "key": ("bound_key_id", "the id of the only key that it may use"),
    "workload": ("workload", "the service account whose pods enrol as this agent"),
}
# Named after the operator's action, not after the status: the API decides which moves are allowed.
MOVES = {
    "submit": ("pending_approval", "submit a draft for approval"),
    "return": ("draft", "return an agent that is pending approval to draft"),
    "approve": ("approved", "approve a pending agent, or a suspended one again"),
    "suspend": ("suspended", "suspend an approved agent: it is denied until approved again"),
    "deprecate": ("deprecated", "take an agent out of service permanently"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    actions.add_list(PATH, COLUMNS, "list agents, newest first", FILTERS)
    shown = actions.add("show", _show, "show an agent and its activity in the last 7 days")
    shown.add_argument("agent_id", metavar="AGENT")
    made = actions.add("register", _register, "register an agent, as a draft")
    made.add_argument("--role", required=True, help="the role that it acts in")
    add_fields(made, DESCRIPTION)
    made.add_argument(
        "--permitted-role", action="append", metavar="ROLE", help="a role it may use; repeatable"
    )
    for name, (status, line) in MOVES.items():
        move = actions.add(name, _move, line)
        move.add_argument("agent_id", metavar="AGENT")
        move.set_defaults(status=status)


def set_status(client: Client, agent_id: str, status: str) -> int:
    path = f"{PATH}/{segment(agent_id)}/status"
    return client.report(
        client.api.request("PATCH", path, body={"status": status}), f"agent {agent_id} is {status}"
    )


def _show(client: Client, options: argparse.Namespace) -> int:
    return client.show(f"{PATH}/{segment(options.agent_id)}")


def _register(client: Client, options: argparse.Namespace) -> int:
    body = {"agent_role": options.role, **given(options, DESCRIPTION)}
    # Without this field, the API permits only the agent's own role.
    if options.permitted_role is not None:
        body["permitted_roles"] = options.permitted_role
    response = client.api.request("POST", PATH, body=body)
    agent = response.body
    return client.report(response, f"agent {agent['agent_id']} is {agent['status']}")


def _move(client: Client, options: argparse.Namespace) -> int:
    return set_status(client, options.agent_id, options.status)
