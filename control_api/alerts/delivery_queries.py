"""Queries over deliveries of alerts. Does not know how an alert is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from sqlalchemy import RowMapping, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.alerts.rule_queries import RuleType
from control_api.store.queries.rows import Position, columns_of, newest_first, values_of
from control_api.store.schema.features import alert_deliveries
from control_api.store.schema.statements import of_tenant

Channel = Literal["webhook", "email", "none"]
DeliveryStatus = Literal["pending", "delivered", "failed", "no_destination"]


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A delivery's row. `address` is its destination and `secret` its signing key; of the
    destination only `target` may be shown. `next_attempt_at` is None once the delivery is
    settled."""

    delivery_id: str
    rule_id: str
    rule_name: str
    rule_type: RuleType
    fired_at: int
    detail: dict[str, Any]
    channel: Channel
    target: str | None
    address: str | None
    secret: str | None
    status: DeliveryStatus
    attempts: int
    last_error: str | None
    next_attempt_at: int | None

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredDelivery":
        fields = {column.name: row[column.name] for column in _DELIVERY}
        return cls(**{**fields, "detail": orjson.loads(row["detail"])})

    def __repr__(self) -> str:
        return f"StoredDelivery({self.delivery_id!r})"


_DELIVERY = columns_of(alert_deliveries)


async def add(connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredDelivery]) -> None:
    values = [{"tenant_id": tenant_id, **_values(row)} for row in rows]
    await connection.execute(insert(alert_deliveries), values)


async def page(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredDelivery]:
    """A page of deliveries, newest first, after `(fired_at, delivery_id)`."""
    query = select(*_DELIVERY).where(of_tenant(alert_deliveries, tenant_id))
    fired_at, delivery_id = alert_deliveries.c.fired_at, alert_deliveries.c.delivery_id
    query = newest_first(query, fired_at, delivery_id, after, limit)
    return [StoredDelivery.from_row(row) for row in (await connection.execute(query)).mappings()]


async def due(
    connection: AsyncConnection, now: int, limit: int, except_to: Sequence[str]
) -> list[tuple[str, StoredDelivery]]:
    """The due deliveries of all tenants, the longest overdue first, except those to the targets
    `except_to`."""
    query = (
        select(alert_deliveries.c.tenant_id, *_DELIVERY)
        .where(
            alert_deliveries.c.next_attempt_at <= now,
            func.coalesce(alert_deliveries.c.target, "").not_in(except_to),
        )
        .order_by(alert_deliveries.c.next_attempt_at)
        .limit(limit)
    )
    rows = (await connection.execute(query)).mappings()
    return [(row["tenant_id"], StoredDelivery.from_row(row)) for row in rows]


async def lease(
    connection: AsyncConnection, tenant_id: str, seen: StoredDelivery, until: int
) -> bool:
    """Claims the delivery for one attempt, until `until`. Returns False if another process has
    claimed it."""
    # If we die during the attempt, the delivery is due again once the lease has expired: an alert
    # may be sent twice, but is never lost.
    done = await connection.execute(
        update(alert_deliveries)
        .where(
            of_tenant(alert_deliveries, tenant_id),
            alert_deliveries.c.delivery_id == seen.delivery_id,
            alert_deliveries.c.next_attempt_at == seen.next_attempt_at,
        )
        .values(next_attempt_at=until, attempts=seen.attempts + 1)
    )
    return bool(done.rowcount == 1)


async def settle(
    connection: AsyncConnection,
    tenant_id: str,
    delivery_id: str,
    *,
    status: str,
    last_error: str | None,
    next_attempt_at: int | None,
) -> None:
    """Records the outcome of an attempt; `next_attempt_at` is None if it was the last."""
    await connection.execute(
        update(alert_deliveries)
        .where(
            of_tenant(alert_deliveries, tenant_id),
            alert_deliveries.c.delivery_id == delivery_id,
        )
        .values(status=status, last_error=last_error, next_attempt_at=next_attempt_at)
    )


async def forget(connection: AsyncConnection, tenant_id: str, before: int, limit: int) -> int:
    """Deletes at most `limit` settled deliveries of alerts that fired before `before`. Returns the
    number of deleted ones."""
    old = (
        select(alert_deliveries.c.delivery_id)
        .where(
            of_tenant(alert_deliveries, tenant_id),
            alert_deliveries.c.fired_at < before,
            alert_deliveries.c.next_attempt_at.is_(None),
        )
        .limit(limit)
    )
    names = list((await connection.execute(old)).scalars())
    if names:
        await connection.execute(
            delete(alert_deliveries).where(
                of_tenant(alert_deliveries, tenant_id),
                alert_deliveries.c.delivery_id.in_(names),
            )
        )
    return len(names)


def _values(row: StoredDelivery) -> dict[str, Any]:
    return {**values_of(row), "detail": orjson.dumps(row.detail)}
