"""`sluice fleet`: the sidecars of the tenant, and whether all of them have a revision."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from deploy.client.client import Client, common, paged, positive
from deploy.client.connection import PAGE, SECONDS, ApiUnreachable

PATH = "/v1/sidecars"
COLUMNS = (
    ("SIDECAR", "sidecar_id"),
    ("LIVE", "live"),
    ("REVISION", "revision"),
    ("AGE MS", "policy_set_age_ms"),
    ("SPOOL", "spool_depth"),
    ("AGENT", "agent_id"),
    ("ROLE", "agent_role"),
    ("VERSION", "version"),
    ("LAST SEEN", "last_seen"),
    ("REFUSING", "refusing"),
)
LONGEST = 25
"""Seconds that one request waits: the API allows 30, and gateways about as many."""
BETWEEN = 1.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = "Lists the sidecars, newest first."
    paged(common(parser, _fleet))
    parser.add_argument(
        "--wait-for",
        type=positive,
        metavar="REVISION",
        help="wait until every live sidecar has it, as a change printed it; exit code 1 and those "
        "that lack it where the time runs out",
    )
    parser.add_argument(
        "--timeout", type=positive, default=60, metavar="SECONDS", help="how long (default 60)"
    )


def _fleet(client: Client, chosen: argparse.Namespace) -> int:
    if chosen.wait_for is None:
        return client.list(PATH, {}, chosen, COLUMNS)
    behind = _wait(client, chosen.wait_for, chosen.timeout)
    if client.out.as_json or behind:
        client.out.rows([behind], COLUMNS)
    if behind:
        told = f"{len(behind)} live sidecars lack revision {chosen.wait_for}"
        print(f"sluice: {told} after {chosen.timeout} s", file=sys.stderr)
        return 1
    if not client.out.as_json:
        client.out.document(None, f"every live sidecar has revision {chosen.wait_for}")
    return 0


def _wait(client: Client, revision: int, seconds: int) -> list[dict[str, Any]]:
    """The live sidecars that still lack it at the end; none as soon as all have it."""
    end = time.monotonic() + seconds
    while True:
        left = max(0, min(LONGEST, int(end - time.monotonic())))
        query = {"wait_for": revision, "timeout": left, "limit": PAGE}
        try:
            behind: list[dict[str, Any]] = client.api.ask(
                "GET", PATH, query, seconds=left + SECONDS
            ).body
            if not behind or time.monotonic() + 1 > end:
                return behind
        except ApiUnreachable:
            # A control API that is started again in the middle is a pause, no answer.
            if time.monotonic() + BETWEEN > end:
                raise
        time.sleep(BETWEEN)
