"""`sluice fleet`: lists the tenant's sidecars, waits until all of them have a revision of the
policy set, or shows when each one applied a revision, by its own records in the audit trail."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from deploy.commands.client.client import Client, common, paged, positive
from policies.ground.process.api_client import PAGE, RequestRefused, ServiceUnusable

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
    ("FORKED", "forked"),
)
ACKNOWLEDGED = "/v1/audit/acknowledgements"
ACKNOWLEDGED_COLUMNS = (
    ("SIDECAR", "sidecar_id"),
    ("APPLIED AT", "at"),
    ("ENTRY", "seq"),
    ("LAST REVISION", "last_revision"),
    ("LAST SEEN", "last_seen"),
)
MAX_WAIT = 25
"""The most seconds that one request asks the API to wait. The API allows 30, but many gateways end
a request after that time."""
PAUSE = 1.0
"""The seconds between two requests."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists the sidecars, newest first."
    paged(common(parser, _fleet))
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument(
        "--applied",
        type=positive,
        metavar="REVISION",
        help="show when each live sidecar applied this revision, by the first entry of its own "
        "records in the audit trail that shows it; exit with 1 if one has not",
    )
    asked.add_argument(
        "--wait-for",
        type=positive,
        metavar="REVISION",
        help="wait until every live sidecar has this revision, which a change printed; at the "
        "timeout, list the sidecars that lack it and exit with 1",
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        default=60,
        metavar="SECONDS",
        help="how long to wait (default 60)",
    )


def _fleet(client: Client, options: argparse.Namespace) -> int:
    if options.applied is not None:
        return _applied(client, options.applied)
    if options.wait_for is None:
        return client.list(PATH, {}, options, COLUMNS)
    behind = _wait(client, options.wait_for, options.timeout)
    # As JSON, print an empty list too: a program expects one.
    if client.out.as_json or behind:
        client.out.rows([behind], COLUMNS)
    if behind:
        problem = f"{len(behind)} live sidecars lack revision {options.wait_for}"
        print(f"sluice: {problem} after {options.timeout} s", file=sys.stderr)
        return 1
    if not client.out.as_json:
        client.out.document(None, f"every live sidecar has revision {options.wait_for}")
    return 0


def _applied(client: Client, revision: int) -> int:
    applied, missing = [], []
    query: dict[str, Any] | None = {"revision": revision, "limit": PAGE}
    while query is not None:
        response = client.api.request("GET", ACKNOWLEDGED, query)
        applied += response.body["applied"]
        missing += response.body["missing"]
        query = response.next()
    if client.out.as_json:
        value = {"revision": revision, "applied": applied, "missing": missing}
        client.out.document(value, "")
    else:
        client.out.rows([applied, missing], ACKNOWLEDGED_COLUMNS)
    return 1 if missing else 0


def _wait(client: Client, revision: int, seconds: int) -> list[dict[str, Any]]:
    """Wait up to `seconds` until every live sidecar has `revision`. Return the sidecars that still
    lack it; the list is empty if all have it."""
    end = time.monotonic() + seconds  # the wall clock may step while we wait
    while True:
        left = max(0, min(MAX_WAIT, int(end - time.monotonic())))
        # The API answers at once if no sidecar is behind, else after `timeout` at the latest.
        query = {"wait_for": revision, "timeout": left, "limit": PAGE}
        try:
            response = client.api.request("GET", PATH, query, held=left)
            behind: list[dict[str, Any]] = response.body
            # In the last second, `timeout` would be 0, since it is a whole number.
            if not behind or time.monotonic() + 1 > end:
                return behind
        except RequestRefused:
            raise
        except ServiceUnusable:
            # The control API may be restarting; only a failure at the end counts.
            if time.monotonic() + PAUSE > end:
                raise
        time.sleep(PAUSE)
