"""Lists a tenant's audit events."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.presenters import event_page
from control_api.requests.base import Identifier, ListRequest
from control_api.responses.audit import AuditEvent
from control_api.responses.paging import Page
from policies.ground.canonical import micros, rfc3339

# RFC 3339, section 5.6. The log itself always writes six fraction digits and `Z`. Without `re.A`,
# `\d` would match digits of other scripts too.
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.A
)


def _time(text: str) -> str:
    """The time in the log's own form, without the digits beyond a microsecond."""
    try:
        # `fromisoformat` alone also takes dates, weeks, and times without an offset.
        if _TIMESTAMP.match(text) is None:
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
        # In integers: `timestamp()` is a float, which can be off by a microsecond.
        return rfc3339((moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise ValueError(f"must be an RFC 3339 time, such as `{rfc3339(0)}`") from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Time = Annotated[str, AfterValidator(_time), Field(json_schema_extra={"format": "date-time"})]


class EventsRequest(ListRequest):
    """Every filter is an exact match; an event must match all that are given. `from` is inclusive,
    `to` exclusive."""

    agent_role: Identifier | None = None
    decision: Literal["ALLOW", "DENY"] | None = None
    source_id: Identifier | None = None
    user_id: Identifier | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    policy_name: Identifier | None = None
    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")


async def list_events(app: AppContext, caller: Caller, request: EventsRequest) -> Page[AuditEvent]:
    """List audit events, newest first."""
    filters = read.EventFilters(
        agent_role=request.agent_role,
        decision=request.decision,
        source_id=request.source_id,
        user_id=request.user_id,
        agent_id=request.agent_id,
        session_id=request.session_id,
        policy_name=request.policy_name,
        since=None if request.since is None else micros(request.since),
        until=None if request.until is None else micros(request.until),
    )
    trail = await read.events(app.store, caller.tenant_id, filters, request.limit, request.seq())
    return event_page(trail)
