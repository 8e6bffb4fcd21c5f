"""OCSF 1.8.0: Datastore Activity (class 6005) with the profile Security Control.

https://schema.ocsf.io/1.8.0/classes/datastore_activity?profiles=security_control
"""

from collections.abc import Mapping
from typing import Any

from policies import __version__
from policies.ground.canonical import micros
from policies.trail.fields import exported

VERSION = "1.8.0"
_PRODUCT = {"name": "Sluice", "vendor_name": "Sluice", "version": __version__}
_PROFILES = ["security_control"]
_SHA_256 = 3
"""`fingerprint.algorithm_id`."""
_OTHER = 99
"""`databucket.type_id`: OCSF knows buckets of three clouds."""
_CONTROL_API = {"svc_name": "control-api"}
"""The endpoint of a decision that no sidecar made. OCSF requires one."""
_UNMAPPED = exported("ocsf", "unmapped.")


def activity(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """The event as an OCSF event."""
    allowed = event["decision"] == "ALLOW"
    source, sidecar = event["source_id"], event["sidecar_id"]
    policy = {"name": event["policy_name"]}
    if event["policy_version"] is not None:
        policy["version"] = str(event["policy_version"])
    actor: dict[str, Any] = {
        "app_name": event["agent_role"],
        "authorizations": [{"decision": event["decision"], "policy": policy}],
    }
    if event["agent_id"] is not None:
        actor["app_uid"] = event["agent_id"]
    if event["user_id"] is not None:
        actor["user"] = {"uid": event["user_id"]}
    if event["session_id"] is not None:
        actor["session"] = {"uid": event["session_id"]}
    found = {
        "class_uid": 6005,
        "category_uid": 6,
        "activity_id": 4,
        "type_uid": 600504,
        "severity_id": 1 if allowed else 3,
        "time": micros(event["timestamp"]) // 1000,
        "metadata": {
            "version": VERSION,
            "product": _PRODUCT,
            "profiles": _PROFILES,
            "uid": event["event_id"],
            "sequence": event["seq"],
            "tenant_uid": tenant_id,
        },
        "action_id": 1 if allowed else 2,
        "disposition_id": 1 if allowed else 2,
        "status_id": 1 if allowed else 2,
        "status_detail": event["reason"],
        "policy": policy,
        "actor": actor,
        "databucket": {"name": source, "uid": source, "type_id": _OTHER},
        "type_id": 2,
        "src_endpoint": _CONTROL_API if sidecar is None else {"name": sidecar},
        "raw_data_hash": {"algorithm_id": _SHA_256, "value": event["hash"]},
        "unmapped": {
            member: value
            for member, name in _UNMAPPED
            if (value := event[name]) is not None and value is not False
        },
    }
    if event["check"] is not None:
        found["status_code"] = event["check"]
    return found
