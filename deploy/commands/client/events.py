"""`sluice events`: the audit trail, searched or followed."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.commands.client.client import Client, add_fields, common, given, paged
from deploy.commands.client.connection import segment
from deploy.commands.client.credentials import UnusableArguments
from deploy.commands.client.follow import follow
from deploy.commands.client.output import cell

PATH = "/v1/audit/events"
COLUMNS = (
    ("TIME", "timestamp"),
    ("DECISION", "decision"),
    ("ROLE", "agent_role"),
    ("AGENT", "agent_id"),
    ("USER", "user_id"),
    ("SOURCE", "source_id"),
    ("LEVEL", "sensitivity_level"),
    ("ID", "event_id"),
    ("REASON", "reason"),
)
FILTERS = {
    "role": ("agent_role", "only events of this role"),
    "agent": ("agent_id", "only events of this agent"),
    "user": ("user_id", "only events of this user"),
    "source": ("source_id", "only events about this source"),
    "session": ("session_id", "only events of this session"),
    "policy": ("policy_name", "only events decided by this policy or check"),
    "from": ("from", "only events at or after this time"),
    "to": ("to", "only events before this time"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists audit events, newest first, or follows them, oldest first."
    paged(common(parser, _events))
    parser.add_argument(
        "--decision", choices=("ALLOW", "DENY"), help="only events with this decision"
    )
    add_fields(parser, FILTERS)
    parser.add_argument(
        "--event", metavar="ID", help="show this event in full, with the reasons of its decision"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print the newest --limit events, then new ones as they arrive, until Ctrl-C; with "
        "--json, one JSON line each",
    )


def _events(client: Client, options: argparse.Namespace) -> int:
    query = given(options, FILTERS)
    if options.decision is not None:
        query["decision"] = options.decision
    if options.event is not None:
        if query or options.follow or options.all:
            raise UnusableArguments("--event shows one event: leave filters, --all, --follow out")
        return _show(client, options.event)
    if not options.follow:
        return client.list(PATH, query, options, COLUMNS)
    if options.to is not None:
        raise UnusableArguments("--to can't be used with --follow, which never ends; remove it")
    follow(client, PATH, query, None if options.all else options.limit, COLUMNS)
    return 0


def _show(client: Client, event_id: str) -> int:
    """Print one event, then each check of its decision."""
    found = client.api.request("GET", f"{PATH}/{segment(event_id)}").body
    if client.out.as_json:
        client.out.members(found)
        return 0
    client.out.members(found["event"])
    explained = found["explain"]
    if explained is None:
        # An old record, or one of a question about an agent that the sidecar does not act for, has
        # no facts to explain it by. The event itself says what was decided.
        client.out.members({"explanation": f"none: {found['unexplained']}"})
        return 0
    client.out.members({each["check"]: _outcome(each) for each in explained["checks"]})
    miss = explained["nearest_miss"]
    hints = {"nearest miss": miss and miss["change"], "suggestion": found["suggestion"]}
    client.out.members({name: text for name, text in hints.items() if text})
    return 0


def _outcome(check: dict[str, Any]) -> str:
    facts = "; ".join(f"{name}={cell(value)}" for name, value in check["facts"].items())
    return f"{check['outcome']}: {facts}" if facts else str(check["outcome"])
