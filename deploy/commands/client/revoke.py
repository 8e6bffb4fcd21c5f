"""`sluice revoke`: revokes a key, a session or many sessions, or suspends an agent."""

from __future__ import annotations

import argparse

from deploy.commands.client import agents, keys, sessions
from deploy.commands.client.client import Client, Commands, add_fields, given
from policies.ground.process.api_client import UnusableArguments

PATH = "/v1/sessions/revoke"
FILTERS = {
    "role": ("agent_role", "sessions of this role"),
    "agent": ("agent_id", "sessions of this agent"),
    "user": ("user_id", "sessions of this user"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    key = actions.add("key", _key, "revoke a key")
    key.add_argument("key_id", metavar="KEY_ID")
    agent = actions.add("agent", _agent, "suspend an agent; `sluice agents approve` undoes it")
    agent.add_argument("agent_id", metavar="AGENT")
    session = actions.add("session", _session, "revoke a session")
    session.add_argument("session_id", metavar="SESSION")
    session.add_argument("--reason", help="the reason, for the record")
    many = actions.add("sessions", _sessions, "revoke every session that matches all filters")
    add_fields(many, FILTERS)
    many.add_argument("--reason", required=True, help="the reason, for the record")


def _key(client: Client, options: argparse.Namespace) -> int:
    return keys.revoke(client, options.key_id)


def _agent(client: Client, options: argparse.Namespace) -> int:
    return agents.set_status(client, options.agent_id, "suspended")


def _session(client: Client, options: argparse.Namespace) -> int:
    return sessions.revoke(client, options.session_id, options.reason)


def _sessions(client: Client, options: argparse.Namespace) -> int:
    filters = given(options, FILTERS)
    # A command without its filters, for example cut short, must not revoke all sessions.
    if not filters:
        raise UnusableArguments("give at least one of --role, --agent and --user")
    response = client.api.request("POST", PATH, body=filters | {"reason": options.reason})
    return client.report(response, f"{response.body['revoked']} sessions are revoked")
