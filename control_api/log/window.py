"""Which entries fall into a span of time. The one filter that `seq` does not follow.

An entry's time is its decision's; a sidecar that was cut off delivers later, so times don't grow
with `seq`. The entries of the span come from the index over time, whatever the log's length.
"""

from sqlalchemy import ColumnElement, select

from control_api.store.schema import log_entries


def in_window(tenant_id: str, since: int | None, until: int | None) -> ColumnElement[bool]:
    """Of entries from `since` on, before `until`; microseconds since 1970 UTC, None for open."""
    other = log_entries.alias()
    span = select(other.c.seq).where(other.c.tenant_id == tenant_id)
    if since is not None:
        span = span.where(other.c.ts >= since)
    if until is not None:
        span = span.where(other.c.ts < until)
    return log_entries.c.seq.in_(span)
