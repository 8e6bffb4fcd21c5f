"""`sluice sessions`: lists, shows and revokes sessions."""

from __future__ import annotations

import argparse

from deploy.commands.client.client import Client, Commands
from policies.ground.process.api_client import segment

PATH = "/v1/sessions"
COLUMNS = (
    ("SESSION", "session_id"),
    ("STATUS", "status"),
    ("ROLE", "agent_role"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
)


FILTERS = {
    "status": ("status", "only sessions that are active, expired or revoked"),
    "role": ("agent_role", "only sessions of this role"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    actions.add_list(PATH, COLUMNS, "list sessions, newest first", FILTERS)
    shown = actions.add("show", _show, "show a session, its owner and its decisions")
    ended = actions.add("revoke", _revoke, "revoke a session: its id never works again")
    ended.add_argument("--reason", help="the reason, for the record")
    for each in (shown, ended):
        each.add_argument("session_id", metavar="SESSION")


def revoke(client: Client, session_id: str, reason: str | None) -> int:
    path = f"{PATH}/{segment(session_id)}"
    response = client.api.request("DELETE", path, {"reason": reason})
    return client.report(response, f"session {session_id} is revoked")


def _show(client: Client, options: argparse.Namespace) -> int:
    return client.show(f"{PATH}/{segment(options.session_id)}")


def _revoke(client: Client, options: argparse.Namespace) -> int:
    return revoke(client, options.session_id, options.reason)
