"""CloudEvents 1.0, JSON event format.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

# Section "Type System": an attribute that is a string has neither control characters nor
# noncharacters. An identifier of ours may have noncharacters.
_NOT_ALLOWED = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(
        f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
    )
    + "]"
)


def cloud_event(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """The event as a CloudEvent, with the audit event as its `data`. In its `subject`, characters
    that CloudEvents does not allow are percent-encoded; `data` has the source as it is."""
    data = dict(event)
    del data["query"]
    if data["user_id"] is None:
        del data["user_id"]
    subject = event["source_id"]
    # Nearly every source is printable, and that is the faster test.
    if not subject.isprintable():
        subject = _NOT_ALLOWED.sub(lambda found: quote(found[0]), subject)
    return {
        "specversion": "1.0",
        "id": event["event_id"],
        "source": f"urn:sluice:{quote(tenant_id, safe='')}",
        "type": "sluice.decision.allow" if event["decision"] == "ALLOW" else "sluice.decision.deny",
        "subject": subject,
        "time": event["timestamp"],
        "datacontenttype": "application/json",
        "data": data,
    }
