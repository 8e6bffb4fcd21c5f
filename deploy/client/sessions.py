"""`sluice sessions`: what agents do under one session id."""

from __future__ import annotations

import argparse

from deploy.client.client import Client, Commands
from deploy.client.connection import segment

PATH = "/v1/sessions"
COLUMNS = (
    ("SESSION", "session_id"),
    ("STATUS", "status"),
    ("ROLE", "agent_role"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Its actions and their arguments."""
    actions = Commands(parser)
    listed = actions.add_list(_list, "list sessions, newest first")
    listed.add_argument("--status", help="only those of this status: active, expired or revoked")
    listed.add_argument("--role", help="only those of this role")
    shown = actions.add("show", _show, "show a session, whose it is and what was decided in it")
    ended = actions.add("revoke", _revoke, "revoke a session: its id never works again")
    ended.add_argument("--reason", help="why, for the record")
    for each in (shown, ended):
        each.add_argument("session_id", metavar="SESSION")


def revoke(client: Client, session_id: str, reason: str | None) -> int:
    """Revokes one session."""
    path = f"{PATH}/{segment(session_id)}"
    answer = client.api.ask("DELETE", path, {"reason": reason})
    return client.did(answer, f"session {session_id} is revoked")


def _list(client: Client, chosen: argparse.Namespace) -> int:
    query = {"status": chosen.status, "agent_role": chosen.role}
    return client.list(PATH, query, chosen, COLUMNS)


def _show(client: Client, chosen: argparse.Namespace) -> int:
    return client.show(f"{PATH}/{segment(chosen.session_id)}")


def _revoke(client: Client, chosen: argparse.Namespace) -> int:
    return revoke(client, chosen.session_id, chosen.reason)
