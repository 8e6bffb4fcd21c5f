"""Counts the registered agents by status, and computes their deny rates."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import deny_rate
from control_api.requests.base import EmptyRequest
from control_api.responses.agents import ACTIVITY_WINDOW, RegistryCounts
from control_api.store.counters import queries as counters
from control_api.store.queries import agents


async def show_registry_counts(app: AppContext, caller: Caller, _: EmptyRequest) -> RegistryCounts:
    """Count the registered agents by status; deny rates cover the last 7 days."""
    tenant_id = caller.tenant_id
    async with app.store.reading(tenant_id) as connection:
        by_status = await agents.count_by_status(connection, tenant_id)
        since = app.clock.now() - ACTIVITY_WINDOW
        recent = await counters.by_agent(connection, tenant_id, since)
    # A status without agents is missing from the counts, so each is named here to be shown as 0.
    return RegistryCounts(
        total=sum(by_status.values()),
        draft=by_status.get("draft", 0),
        pending_approval=by_status.get("pending_approval", 0),
        approved=by_status.get("approved", 0),
        suspended=by_status.get("suspended", 0),
        deprecated=by_status.get("deprecated", 0),
        pending=by_status.get("pending_approval", 0),
        deny_rate=deny_rate(
            sum(each.allowed for each in recent), sum(each.denied for each in recent)
        ),
        deny_rates={each.value: deny_rate(each.allowed, each.denied) for each in recent},
    )
