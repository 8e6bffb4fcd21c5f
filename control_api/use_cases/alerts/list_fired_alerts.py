"""Lists fired alerts and the state of their delivery."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import time_or_none
from control_api.requests.base import ListRequest
from control_api.responses.alerts import FiredAlert
from control_api.responses.paging import Page, page_of
from control_api.store.queries import deliveries
from control_api.store.queries.deliveries import StoredDelivery
from policies.ground.canonical import rfc3339


async def list_fired_alerts(
    app: AppContext, caller: Caller, request: ListRequest
) -> Page[FiredAlert]:
    """List fired alerts with the state of their delivery, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await deliveries.page(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    return page_of(rows, request.limit, lambda row: (row.fired_at, row.delivery_id), _shown)


def _shown(row: StoredDelivery) -> FiredAlert:
    return FiredAlert(
        delivery_id=row.delivery_id,
        rule_id=row.rule_id,
        rule_name=row.rule_name,
        rule_type=row.rule_type,
        fired_at=rfc3339(row.fired_at),
        detail=row.detail,
        channel=row.channel,
        target=row.target,
        status=row.status,
        attempts=row.attempts,
        last_error=row.last_error,
        next_attempt_at=time_or_none(row.next_attempt_at),
    )
