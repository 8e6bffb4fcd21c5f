"""Lists a tenant's audit events."""

from typing import Literal

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log import read
from control_api.presenters import event_page
from control_api.requests.base import Identifier, ListRequest
from control_api.requests.time import Time
from control_api.responses.audit import AuditEvent
from control_api.responses.paging import Page
from policies.ground.canonical import micros


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
