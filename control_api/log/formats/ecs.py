"""Elastic Common Schema 8.17.

https://www.elastic.co/guide/en/ecs/8.17/ecs-field-reference.html
"""

from collections.abc import Mapping
from typing import Any

from policies.trail.fields import exported

_ECS = {"version": "8.17"}
_CATEGORY = ["database"]
_ALLOWED, _DENIED = ["access", "allowed"], ["access", "denied"]
_LABELS = exported("ecs", "labels.")


def document(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """The event as an ECS document of nested objects."""
    allowed = event["decision"] == "ALLOW"
    rule = {"name": event["policy_name"]}
    if event["policy_version"] is not None:
        rule["version"] = str(event["policy_version"])
    labels = {}
    for label, name in _LABELS:
        value = event[name]
        if value is not None and value is not False:
            # ECS has labels of text alone.
            labels[label] = value if isinstance(value, str) else str(value).lower()
    user: dict[str, Any] = {"roles": [event["agent_role"]]}
    if event["user_id"] is not None:
        user["id"] = event["user_id"]
    found = {
        "@timestamp": event["timestamp"],
        "ecs": _ECS,
        "event": {
            "kind": "event",
            "category": _CATEGORY,
            "type": _ALLOWED if allowed else _DENIED,
            "module": "sluice",
            "action": "retrieval",
            "id": event["event_id"],
            "sequence": event["seq"],
            "hash": event["hash"],
            "outcome": "success" if allowed else "failure",
            "reason": event["reason"],
        },
        "rule": rule,
        "user": user,
        "organization": {"id": tenant_id},
        "labels": labels,
    }
    if event["agent_id"] is not None:
        found["service"] = {"name": event["agent_id"]}
    if event["sidecar_id"] is not None:
        found["observer"] = {"name": event["sidecar_id"]}
    return found
