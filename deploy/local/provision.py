"""Creates the sidecar's key, the agent's key and the agent, through the control API's public
routes.

The ids of the keys and of the agent are stored in `up.json` in the data directory, for the next
start.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from policies.ground.process.api_client import ControlApiClient, RequestRefused

AGENT_ID = "agt_support"
ROLE = "support_assistant"
STATUSES = ("draft", "pending_approval", "approved")
KEYS = {
    "sidecar.key": ("sidecar", "sluice up: sidecar"),
    "agent.key": ("evaluate", "sluice up: agent"),
}


class FirstStart(NamedTuple):
    """The content of `first-start.json`, which the control API writes when it starts with an empty
    store."""

    tenant_id: str
    admin_key: str
    superadmin_key: str | None
    """The superadmin's key; None if the operator set it (`SLUICE_SUPERADMIN_KEY`), so that it is
    not in the file."""

    @classmethod
    def read(cls, data_dir: Path) -> FirstStart | None:
        """Read the file in the data directory; None if the operator has removed it."""
        try:
            found = json.loads((data_dir / "first-start.json").read_text())
        except FileNotFoundError:
            return None
        return cls(**{field: found[field] for field in cls._fields})


class AdminKeyMissing(Exception):
    """an admin key is needed, and the data directory has none"""


def provision(control: ControlApiClient, first: FirstStart | None, data_dir: Path) -> str:
    """Create the keys and the agent if they are missing, and return the agent's key. Raises
    `AdminKeyMissing` if something is missing and `first` is None, since only an admin key can
    create it."""
    state = data_dir / "up.json"
    if first is None:
        if not all((data_dir / file).exists() for file in (*KEYS, "up.json")):
            raise AdminKeyMissing(
                f"`{data_dir}` has no first-start.json, whose admin key is needed to create keys; "
                "put the file back, or choose a new directory with --data-dir"
            )
        return (data_dir / "agent.key").read_text()
    made: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {}
    # The API lists only keys that are not revoked.
    valid = {key["key_id"] for key in control.request("GET", "/v1/keys?limit=1000").body}
    for file, (scope, name) in KEYS.items():
        # The database may have been removed, or the key revoked, since the last start.
        if made.get(file) in valid and (data_dir / file).exists():
            continue
        body: dict[str, Any] = {"name": name, "scope": scope, "expires_days": None}
        body |= {"agent_ids": [AGENT_ID]} if scope == "sidecar" else {"bound_agent_id": AGENT_ID}
        key = control.request("POST", "/v1/keys", body=body).body
        # If we die before the last line of this loop, the next start creates another key. The lost
        # one, whose secret is gone, stays in the list of keys, where an admin can revoke it.
        write_private(data_dir / file, key["key"])
        made[file] = key["key_id"]
        write_private(state, json.dumps(made))
    # Ask the API too, since the database may have been removed.
    if made.get("agent") != AGENT_ID or not _agent(control):
        _approve(control)
        write_private(state, json.dumps(made | {"agent": AGENT_ID}))
    return (data_dir / "agent.key").read_text()


def _agent(control: ControlApiClient) -> Any:
    try:
        return control.request("GET", f"/v1/agents/{AGENT_ID}").body
    except RequestRefused as refused:
        if refused.status == 404:
            return None
        raise


def _approve(control: ControlApiClient) -> None:
    """Register the agent if it is missing, and approve it. If an earlier start was interrupted,
    continue from the agent's current status."""
    registration = {
        "agent_id": AGENT_ID,
        "agent_role": ROLE,
        "display_name": "Support assistant",
        "description": "Answers customers' questions from the handbook and the catalogue",
        "owner": "sluice up",
    }
    agent = _agent(control) or control.request("POST", "/v1/agents", body=registration).body
    # An operator may have changed the status: `suspended` and `deprecated` stay as they are.
    for before, after in itertools.pairwise(STATUSES):
        if agent["status"] == before:
            path = f"/v1/agents/{AGENT_ID}/status"
            agent = control.request("PATCH", path, body={"status": after}).body


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, and let only its owner read it."""
    # A key file that a crash cut short would look like a key. A crash may leave only the new file
    # behind, which the next start replaces.
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    new.replace(path)
