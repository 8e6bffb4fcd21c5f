"""`sluice audit`: has the control API verify the audit trail, and shows its progress and result."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from deploy.commands.client.client import Client, Commands

PATH = "/v1/audit/verification"
PAUSE = 1.0
"""The seconds between two requests for the progress."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = Commands(parser)
    actions.add(
        "verify",
        _verify,
        "have the control API verify the audit trail, wait until it has, and print the result; "
        "exit with 1 if something is wrong",
    )
    actions.add(
        "status",
        _status,
        "show how far the control API has verified the audit trail, and what it found last; exit "
        "with 1 if something is wrong",
    )


def _status(client: Client, _: argparse.Namespace) -> int:
    found = client.api.request("GET", PATH).body
    client.out.members(found)
    return _code(found)


def _verify(client: Client, _: argparse.Namespace) -> int:
    found = client.api.request("POST", PATH).body
    said = ""
    # If we are interrupted here, the control API verifies the rest all the same.
    while found["running"]:
        if (now := _progress(found)) != said:
            print(f"sluice: {now}", file=sys.stderr)
            said = now
        time.sleep(PAUSE)
        found = client.api.request("GET", PATH).body
    client.out.document(found, _result(found))
    return _code(found)


def _code(found: dict[str, Any]) -> int:
    return 1 if found["state"] == "damaged" else 0


def _progress(found: dict[str, Any]) -> str:
    if found["queued"]:
        return "waiting until a process of the control API begins, within a minute"
    return f"at entry {found['reached']:,} of {found['total']:,}"


def _result(found: dict[str, Any]) -> str:
    if found["state"] == "damaged":
        return f"damaged: {_place(found)}{found['reason']}"
    # `pending` is a log that nothing has verified to its end yet, such as one that is purged.
    return f"{found['state']}: {found['reached']:,} of {found['total']:,} entries are verified"


def _place(found: dict[str, Any]) -> str:
    """Return the place of a finding, as the beginning of a sentence: the entry that fails, or an
    empty text if the finding is not about a single entry."""
    if found["broken_at"] is None:
        return ""
    if found["broken_seq"] is None:
        return f"at {found['broken_at']}: "
    return f"entry {found['broken_seq']} (`{found['broken_at']}`): "
