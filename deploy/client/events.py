"""`sluice events`: the audit trail, searched or followed."""

from __future__ import annotations

import argparse

from deploy.client.client import Client, add_fields, common, given, paged
from deploy.client.credentials import UnusableArguments
from deploy.client.follow import follow

PATH = "/v1/audit/events"
COLUMNS = (
    ("TIME", "timestamp"),
    ("DECISION", "decision"),
    ("ROLE", "agent_role"),
    ("AGENT", "agent_id"),
    ("USER", "user_id"),
    ("SOURCE", "source_id"),
    ("LEVEL", "sensitivity_level"),
    ("REASON", "reason"),
)
FILTERS = {
    "role": ("agent_role", "only events of this role"),
    "agent": ("agent_id", "only events of this agent"),
    "user": ("user_id", "only events of this user"),
    "source": ("source_id", "only events about this source"),
    "session": ("session_id", "only events of this session"),
    "policy": ("policy_name", "only events decided by this policy or check"),
    "from": ("from", "only events at or after this time, such as 2026-01-31T12:00:00Z"),
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
        "--follow",
        action="store_true",
        help="print the newest --limit events, then new ones as they arrive, until Ctrl-C; with "
        "--json, one JSON line each",
    )


def _events(client: Client, options: argparse.Namespace) -> int:
    query = given(options, FILTERS)
    if options.decision is not None:
        query["decision"] = options.decision
    if not options.follow:
        return client.list(PATH, query, options, COLUMNS)
    if options.to is not None:
        raise UnusableArguments("--to can't be used with --follow, which never ends; remove it")
    follow(client, PATH, query, None if options.all else options.limit, COLUMNS)
    return 0
