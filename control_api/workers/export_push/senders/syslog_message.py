"""A decision as a syslog message: RFC 5424, framed by its length (RFC 6587 3.4.1, RFC 5425 4.3)."""

import re
from collections.abc import Callable

from control_api.workers.export_push.senders.sender import AuditEvent

ENTERPRISE = 32473
"""RFC 5612: the number for examples, until there is one of our own."""
_LOG_AUDIT, _INFORMATIONAL, _WARNING = 13, 6, 4
_ESCAPED = re.compile(r'["\\\]]')
"""Characters that a parameter escapes with a backslash (RFC 5424, section 6.3.3). Needed, since an
event's id comes from a sidecar."""
_PARAMETERS = ("event_id", "seq", "hash")
_NOT_IN_HOSTNAME = re.compile(r"[^!-~]")


def framed_message(
    event: AuditEvent, tenant_id: str, hostname: str, line: Callable[[AuditEvent, str], bytes]
) -> bytes:
    """The message in its frame. `line` makes its text, without a byte order mark before it: what
    reads the text as JSON would stumble over one."""
    severity = _INFORMATIONAL if event["decision"] == "ALLOW" else _WARNING
    host = _NOT_IN_HOSTNAME.sub("", hostname)[:255] or "-"
    parameters = " ".join(
        f'{name}="{_ESCAPED.sub(_escape, str(event[name]))}"'
        for name in ("event_id", "seq", "hash")
    )
    head = (
        f"<{_LOG_AUDIT * 8 + severity}>1 {event['timestamp']} {host} sluice - decision "
        f"[sluice@{ENTERPRISE} {parameters}] "
    )
    message = head.encode() + line(event, tenant_id)
    return b"%d %b" % (len(message), message)


def _escape(found: re.Match[str]) -> str:
    return f"\\{found.group()}"
