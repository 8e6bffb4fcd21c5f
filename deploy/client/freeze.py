"""`sluice freeze`: every evaluation of the tenant is denied until it is lifted."""

from __future__ import annotations

import argparse

from deploy.client.client import Client, common
from deploy.client.credentials import UnusableCredentials

PATH = "/v1/freeze"


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.description = (
        "Denies every evaluation of the tenant (`tenant_frozen`), in every sidecar, and records "
        "each denial; --lift ends that."
    )
    common(parser, _freeze)
    parser.add_argument("reason", nargs="?", metavar="REASON", help="why, for the record")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--lift", action="store_true", help="decide by the policies again")
    what.add_argument("--status", action="store_true", help="only show whether it is frozen")


def _freeze(client: Client, chosen: argparse.Namespace) -> int:
    if (chosen.lift or chosen.status) == (chosen.reason is not None):
        raise UnusableCredentials("give a REASON to freeze, or --lift, or --status")
    if chosen.status:
        return client.show(PATH)
    if chosen.lift:
        answer = client.api.ask("DELETE", PATH)
        return client.did(answer, "the tenant is not frozen")
    answer = client.api.ask("POST", PATH, body={"reason": chosen.reason})
    frozen = answer.body
    # One freeze is in force at a time: an earlier one keeps its reason.
    since = f"since {frozen['frozen_at']}, every evaluation is denied: {frozen['reason']}"
    return client.did(answer, f"the tenant is frozen {since}")
