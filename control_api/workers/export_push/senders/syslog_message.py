"""A decision as a syslog message: RFC 5424, framed by its length (RFC 6587 3.4.1, RFC 5425 4.3)."""

import re
from collections.abc import Callable

from control_api.workers.export_push.senders.sender import AuditEvent

ENTERPRISE = 32473
"""RFC 5612: the number for examples, until there is one of our own."""
_LOG_AUDIT, _INFORMATIONAL, _WARNING = 13, 6, 4
_NOT_IN_HOSTNAME = re.compile(r"[^!-~]")


def framed_message(
    event: AuditEvent, tenant_id: str, hostname: str, line: Callable[[AuditEvent, str], bytes]
) -> bytes:
    """The message in its frame. `line` makes its text, without a byte order mark before it: what
    reads the text as JSON would stumble over one."""
    severity = _INFORMATIONAL if event["decision"] == "ALLOW" else _WARNING
    host = _NOT_IN_HOSTNAME.sub("", hostname)[:255] or "-"
    # An event id and a hash have none of the characters that must be escaped here.
    head = (
        f"<{_LOG_AUDIT * 8 + severity}>1 {event['timestamp']} {host} sluice - decision "
        f'[sluice@{ENTERPRISE} event_id="{event["event_id"]}" seq="{event["seq"]}" '
        f'hash="{event["hash"]}"] '
    )
    message = head.encode("ascii") + line(event, tenant_id)
    return b"%d %b" % (len(message), message)
