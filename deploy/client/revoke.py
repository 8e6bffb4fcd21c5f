"""`sluice revoke`: the one place for an incident: a key, an agent, a session, or many sessions."""

from __future__ import annotations

import argparse

from deploy.client import agents, keys, sessions
from deploy.client.client import Client, Commands
from deploy.client.credentials import UnusableCredentials

PATH = "/v1/sessions/revoke"


def declare(parser: argparse.ArgumentParser) -> None:
    """What it revokes, and the arguments of each."""
    actions = Commands(parser)
    key = actions.add("key", _key, "revoke a key")
    key.add_argument("key_id", metavar="KEY_ID")
    agent = actions.add("agent", _agent, "suspend an agent; `sluice agents approve` undoes it")
    agent.add_argument("agent_id", metavar="AGENT")
    session = actions.add("session", _session, "revoke a session")
    session.add_argument("session_id", metavar="SESSION")
    session.add_argument("--reason", help="why, for the record")
    many = actions.add("sessions", _sessions, "revoke every session that matches all filters")
    many.add_argument("--role", help="those of this role")
    many.add_argument("--agent", help="those of this agent")
    many.add_argument("--user", help="those of this user")
    many.add_argument("--reason", required=True, help="why, for the record")


def _key(client: Client, chosen: argparse.Namespace) -> int:
    return keys.revoke(client, chosen.key_id)


def _agent(client: Client, chosen: argparse.Namespace) -> int:
    return agents.set_status(client, chosen.agent_id, "suspended")


def _session(client: Client, chosen: argparse.Namespace) -> int:
    return sessions.revoke(client, chosen.session_id, chosen.reason)


def _sessions(client: Client, chosen: argparse.Namespace) -> int:
    filters = {"agent_role": chosen.role, "agent_id": chosen.agent, "user_id": chosen.user}
    given = {key: value for key, value in filters.items() if value is not None}
    if not given:
        raise UnusableCredentials("give at least one of --role, --agent and --user")
    answer = client.api.ask("POST", PATH, body=given | {"reason": chosen.reason})
    return client.did(answer, f"{answer.body['revoked']} sessions are revoked")
