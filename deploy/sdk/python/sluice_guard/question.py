"""Writes the body of `POST /v1/context/evaluate`: the agent, the source that it wants to read, and
the user."""

from __future__ import annotations

import json

from sluice_guard.attribution import Acting

Principal = tuple[str, str, Acting]
"""The agent's id, its role, and the user, session and task that it acts for."""


def written(
    principal: Principal, source_id: str, sensitivity: str, query: str | None, source_type: str
) -> bytes:
    """Return the body of a check's request as JSON. Raises `TypeError` if the source or the
    sensitivity is not a text, as a function of the caller may return one that is not."""
    for given in (source_id, sensitivity):
        if not isinstance(given, str):
            raise TypeError(f"a source and its level are texts, not `{type(given).__name__}`")
    agent_id, role, who = principal
    body: dict[str, str] = {
        "agent_id": agent_id,
        "agent_role": role,
        # Without a user the agent acts for itself, as in the sidecar's proxy.
        "user_id": who.user or agent_id,
        "source_id": source_id,
        "sensitivity_level": sensitivity,
        "source_type": source_type,
    }
    optional = (("session_id", who.session), ("task_type", who.task), ("query", query))
    body.update((name, value) for name, value in optional if value is not None)
    return json.dumps(body).encode()
