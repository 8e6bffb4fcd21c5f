"""Creates the Redis users that `control_api/policy/publishing/README.md` recommends, so that tests
have only the permissions that the README grants."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import control_api.policy.publishing

README = Path(control_api.policy.publishing.__path__[0]) / "README.md"
SECRET = "secret"  # of a server that lives as long as its test
CONTROL = "sluice-control"
SIDECAR, TENANT = "sluice-sidecar-acme", "acme"
"""The user for the sidecars of a tenant, and that tenant's id."""


def users() -> dict[str, list[str]]:
    """Return each user's rules: the words after ACL SETUSER and the name, without the password."""
    lines = re.findall(r"^ACL SETUSER (\S+) (.*)$", README.read_text(), re.MULTILINE)
    return {
        name: [rule for rule in rules.replace("TENANT_ID", TENANT).split() if rule != ">…"]
        for name, rules in lines
    }


def make_user(root: Any, name: str) -> None:
    """Create them as the client `root`, with `SECRET` as password."""
    root.execute_command("ACL", "SETUSER", name, f">{SECRET}", *users()[name])


def refusals(root: Any, name: str) -> list[Any]:
    """Return the commands that the server refused the user."""
    return [entry for entry in root.acl_log() if entry["username"] == name]
