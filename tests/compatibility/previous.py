"""Runs a control API and a sidecar from the source of another version, beside today's."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.stack import ROOT, Stack


def of_version(stack: Stack, source: Path = ROOT, *, service: str) -> None:
    """From its next start, have `service`, `control` or `sidecar`, run the packages in `source`."""
    chosen = stack.control if service == "control" else stack.sidecar
    first = chosen.command.index("-m")
    # `-P`: otherwise the working directory, this checkout, would come before PYTHONPATH.
    chosen.command = [sys.executable, "-P", *chosen.command[first:]]
    chosen.environ["PYTHONPATH"] = str(source)


def prepare(stack: Stack) -> None:
    """Like `Stack.prepare`, with keys that never expire: a recording is used for years."""
    keys = []
    for scope in ("sidecar", "evaluate"):
        body = {"name": scope, "scope": scope, "expires_days": None}
        keys.append(stack.admin("POST", "/v1/keys", body)["key"])
    stack.sidecar_key, stack.agent_key = keys
    stack.agent_id = "agt_story"
    stack.admin("POST", "/v1/agents", {"agent_id": stack.agent_id, "agent_role": stack.role})
    for status in ("pending_approval", "approved"):
        stack.admin("PATCH", f"/v1/agents/{stack.agent_id}/status", {"status": status})
    stack.write_config()
