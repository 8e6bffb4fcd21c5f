"""The sidecar's key, the agent's key and the agent: made through the control API, like anyone's.

What was made is kept beside the data (`up.json`), and used again by the next start.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from deploy.local.calls import Calls
from deploy.local.settings import Address

AGENT_ID = "agt_support"
ROLE = "support_assistant"
STATUSES = ("draft", "pending_approval", "approved")
KEYS = {
    "sidecar.key": ("sidecar", "sluice up: sidecar"),
    "agent.key": ("evaluate", "sluice up: agent"),
}


class FirstStart(NamedTuple):
    """What the control API wrote when its store was empty."""

    tenant_id: str
    admin_key: str
    superadmin_key: str | None
    """None where the operator chose it (`SLUICE_SUPERADMIN_KEY`)."""

    @classmethod
    def read(cls, data_dir: Path) -> FirstStart | None:
        """None where the operator has taken the file away."""
        try:
            found = json.loads((data_dir / "first-start.json").read_text())
        except FileNotFoundError:
            return None
        return cls(**{field: found[field] for field in cls._fields})


class Locked(Exception):
    """an admin key is needed, and there is none in the data directory"""


def provision(control_api: Address, first: FirstStart | None, data_dir: Path) -> str:
    """Makes what is missing; answers the agent's key. Without an admin key, all must be there."""
    kept = data_dir / "up.json"
    if first is None:
        if not all((data_dir / file).exists() for file in (*KEYS, "up.json")):
            raise Locked(
                f"`{data_dir}` holds no first-start.json with an admin key, and not all that "
                "an earlier start made: put the file back, or begin anew with --data-dir"
            )
        return (data_dir / "agent.key").read_text()
    control = Calls(str(control_api), first.admin_key)
    made: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    valid = {key["key_id"] for key in control.want("GET", "/v1/keys?limit=1000")}
    for file, (scope, name) in KEYS.items():
        if made.get(file) in valid and (data_dir / file).exists():
            continue
        key = control.want("POST", "/v1/keys", {"name": name, "scope": scope, "expires_days": None})
        # If we die between here and the last line, the next start makes another key. The one lost
        # stays in the list under its name: nobody has it, and anyone may revoke it.
        write_private(data_dir / file, key["key"])
        made[file] = key["key_id"]
        write_private(kept, json.dumps(made))
    if made.get("agent") != AGENT_ID or not _agent(control):
        _approve(control)
        write_private(kept, json.dumps(made | {"agent": AGENT_ID}))
    return (data_dir / "agent.key").read_text()


def _agent(control: Calls) -> Any:
    status, agent = control.ask("GET", f"/v1/agents/{AGENT_ID}")
    return agent if status == 200 else None


def _approve(control: Calls) -> None:
    """Registers the agent and takes it to `approved`, from wherever an earlier start left it."""
    agent = _agent(control) or control.want(
        "POST",
        "/v1/agents",
        {
            "agent_id": AGENT_ID,
            "agent_role": ROLE,
            "display_name": "Support assistant",
            "description": "Answers customers' questions from the handbook and the catalogue",
            "owner": "sluice up",
        },
    )
    # An operator may have moved it meanwhile: what is approved or deprecated stays so.
    for before, after in itertools.pairwise(STATUSES):
        if agent["status"] == before:
            agent = control.want("PATCH", f"/v1/agents/{AGENT_ID}/status", {"status": after})


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and readable by its owner alone."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    new.replace(path)
