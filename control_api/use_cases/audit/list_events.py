"""List a tenant's audit events."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.requests.base import Identifier, Listed
from control_api.responses.audit import AuditEvent
from control_api.responses.paging import Page
from policies.ground.canonical import micros, rfc3339

# RFC 3339, 5.6. What we write ourselves is its form with six digits and `Z`.
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.(?P<fraction>\d+))?(?:[Zz]|[+-]\d\d:\d\d)\Z", re.A
)


def _time(text: str) -> str:
    """The moment in the form that the log has; digits beyond a microsecond say nothing to it."""
    found = _MOMENT.match(text)
    try:
        if found is None:
            raise ValueError
        fraction = found["fraction"] or ""
        exact = text.replace(f".{fraction}", f".{fraction[:6]:0<6}", 1) if fraction else text
        moment = datetime.fromisoformat(exact.upper())
        return rfc3339((moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise ValueError(f"must be a time of RFC 3339, such as `{rfc3339(0)}`") from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Time = Annotated[str, AfterValidator(_time), Field(json_schema_extra={"format": "date-time"})]


class AskedEvents(Listed):
    """Filters, each exact; together they narrow. `from` on, before `to`."""

    agent_role: Identifier | None = None
    decision: Literal["ALLOW", "DENY"] | None = None
    source_id: Identifier | None = None
    user_id: Identifier | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    policy_name: Identifier | None = None
    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")


async def list_events(service: AppContext, caller: Caller, asked: AskedEvents) -> Page[AuditEvent]:
    """List audit events, newest first."""
    filters = read.EventFilters(
        agent_role=asked.agent_role,
        decision=asked.decision,
        source_id=asked.source_id,
        user_id=asked.user_id,
        agent_id=asked.agent_id,
        session_id=asked.session_id,
        policy_name=asked.policy_name,
        since=None if asked.since is None else micros(asked.since),
        until=None if asked.until is None else micros(asked.until),
    )
    trail = await read.events(
        service.store, caller.tenant.tenant_id, filters, asked.limit, asked.seq()
    )
    events = [AuditEvent(**event) for event in trail.events]
    return Page(events, None if trail.next is None else (trail.next,))
