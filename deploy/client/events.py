"""`sluice events`: the audit trail, searched or followed."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.client.client import Client, common, paged
from deploy.client.credentials import UnusableCredentials
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
    "role": ("agent_role", "of this role"),
    "agent": ("agent_id", "of this agent"),
    "user": ("user_id", "of this user"),
    "source": ("source_id", "that asked for this source"),
    "session": ("session_id", "of this session"),
    "policy": ("policy_name", "that this policy or check decided"),
    "from": ("from", "at or after this time, such as 2026-01-31T12:00:00Z"),
    "to": ("to", "before this time"),
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = "Lists audit events, newest first, or follows them, oldest first."
    paged(common(parser, _events))
    parser.add_argument("--decision", choices=("ALLOW", "DENY"), help="only those decided so")
    for option, (_, meaning) in FILTERS.items():
        parser.add_argument(
            f"--{option}",
            dest=f"only_{option}",
            metavar="TIME" if option in ("from", "to") else option.upper(),
            help=f"only those {meaning}",
        )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print new events as they come, after the newest --limit, until Ctrl-C; JSON lines "
        "with --json",
    )


def _events(client: Client, chosen: argparse.Namespace) -> int:
    query: dict[str, Any] = {"decision": chosen.decision}
    for option, (parameter, _) in FILTERS.items():
        query[parameter] = getattr(chosen, f"only_{option}")
    if not chosen.follow:
        return client.list(PATH, query, chosen, COLUMNS)
    if chosen.only_to is not None:
        raise UnusableCredentials("--follow has no end: leave out --to")
    follow(client, PATH, query, None if chosen.all else chosen.limit, COLUMNS)
    return 0
