"""The message of a fired alert, and the failure to deliver it: the same for every channel."""

from typing import Any

from control_api.alerts.delivery_queries import StoredDelivery
from policies.ground.canonical import rfc3339


class DeliveryFailed(OSError):
    """the receiver did not accept the delivery; `final` if a retry can't help"""

    # An `OSError`, because aiohttp wraps those that a resolver raises; `webhook` reads the cause.
    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final


def payload(tenant_id: str, delivery: StoredDelivery) -> dict[str, Any]:
    """Standard Webhooks' `{type, timestamp, data}`."""
    # The payload leaves the installation, so it has no user id, no query and no secret.
    return {
        "type": "alert.fired",
        "timestamp": rfc3339(delivery.fired_at),
        "data": {
            "delivery_id": delivery.delivery_id,
            "tenant_id": tenant_id,
            "rule_id": delivery.rule_id,
            "rule_name": delivery.rule_name,
            "rule_type": delivery.rule_type,
            "fired_at": rfc3339(delivery.fired_at),
            "detail": delivery.detail,
        },
    }


def subject(delivery: StoredDelivery) -> str:
    return f"[sluice] alert `{delivery.rule_name}` fired: {delivery.rule_type}"


def text(tenant_id: str, delivery: StoredDelivery) -> str:
    """The body of an email."""
    detail = delivery.detail
    lines = [
        f"The alert rule `{delivery.rule_name}` ({delivery.rule_type}) fired.",
        "",
        f"Fired at:   {rfc3339(delivery.fired_at)}",
        f"Measured:   {detail.get('measured')} (threshold {detail.get('threshold')})",
        f"Window:     {detail.get('window_from')} to {detail.get('window_to')}",
    ]
    if "events" in detail:
        lines.append(f"Events:     {detail['events']}, of which denied {detail['denied']}")
    lines += [
        f"First read: role `{each['agent_role']}` from source `{each['source_id']}`"
        for each in detail.get("accesses", ())
    ]
    lines += ["", f"Tenant {tenant_id}, rule {delivery.rule_id}, delivery {delivery.delivery_id}"]
    return "\n".join(lines) + "\n"
