"""Lists a tenant's audit events."""

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.domain.event_filters import event_filters
from control_api.log import read
from control_api.presenters import event_page
from control_api.requests.base import ListRequest
from control_api.requests.event_filters import EventValues
from control_api.requests.time import Time
from control_api.responses.audit import AuditEvent
from control_api.responses.paging import Page


class EventsRequest(ListRequest, EventValues):
    """Every filter is an exact match; an event must match all that are given. `from` is inclusive,
    `to` exclusive."""

    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")


@ends_with_client
async def list_events(app: AppContext, caller: Caller, request: EventsRequest) -> Page[AuditEvent]:
    """List audit events, newest first."""
    filters = event_filters(request, request.since, request.until)
    trail = await read.events(app.store, caller.tenant_id, filters, request.limit, request.seq())
    return event_page(trail)
