"""Queries alert rules, and the deliveries of the alerts that rules fired."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from sqlalchemy import RowMapping, Select, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.features import alert_deliveries, alert_rules
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import (
    Position,
    columns_of,
    newest_first,
    of_tenant,
    values_of,
)
from control_api.store.schema.tables import tenants

RuleType = Literal[
    "denial_spike", "new_source_access", "isolation_violation", "high_deny_rate", "doubtful_time"
]


@dataclass(frozen=True, slots=True)
class StoredRule:
    """An alert rule's row. Times are in microseconds. `repr` shows no secret."""

    rule_id: str
    name: str
    rule_type: RuleType
    threshold: int
    window_minutes: int
    cooldown_minutes: int
    min_events: int
    webhook_url: str | None
    webhook_secret: str | None
    email: str | None
    enabled: bool
    created_at: int
    updated_at: int
    last_fired_at: int | None = None

    def __repr__(self) -> str:
        return f"StoredRule({self.rule_id!r})"


_RULE = columns_of(alert_rules)


async def rule(connection: AsyncConnection, tenant_id: str, rule_id: str) -> StoredRule | None:
    query = select(*_RULE).where(
        of_tenant(alert_rules, tenant_id), alert_rules.c.rule_id == rule_id
    )
    return next(iter(await _rules(connection, query)), None)


async def _rules(connection: AsyncConnection, query: Select[Any]) -> list[StoredRule]:
    return [StoredRule(**row) for row in (await connection.execute(query)).mappings()]


async def page_of_rules(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredRule]:
    """Return a page of the tenant's rules, newest first, that begins after the position
    `(created_at, rule_id)`."""
    query = select(*_RULE).where(of_tenant(alert_rules, tenant_id))
    columns = alert_rules.c
    return await _rules(
        connection, newest_first(query, columns.created_at, columns.rule_id, after, limit)
    )


async def enabled(connection: AsyncConnection, tenant_id: str) -> list[StoredRule]:
    query = select(*_RULE).where(of_tenant(alert_rules, tenant_id), alert_rules.c.enabled)
    return await _rules(connection, query)


async def count_rules(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(func.count()).where(of_tenant(alert_rules, tenant_id))
    return (await connection.execute(query)).scalar_one()


async def watched(connection: AsyncConnection) -> dict[str, int]:
    """Return the active tenants that have an enabled rule, each with the size of its log."""
    # Only a log that has grown since the last look needs measuring.
    having = select(alert_rules.c.tenant_id).where(alert_rules.c.enabled).distinct().subquery()
    query = (
        select(having.c.tenant_id, log_heads.c.size)
        .join(log_heads, of_tenant(log_heads, having.c.tenant_id))
        .join(tenants, of_tenant(tenants, having.c.tenant_id))
        .where(tenants.c.active)
    )
    return {tenant_id: size for tenant_id, size in await connection.execute(query)}  # noqa: C416


async def add_rule(connection: AsyncConnection, tenant_id: str, row: StoredRule) -> None:
    await connection.execute(insert(alert_rules).values(tenant_id=tenant_id, **values_of(row)))


async def put_rule(connection: AsyncConnection, tenant_id: str, row: StoredRule) -> None:
    """Update the row of the rule with the same id."""
    await connection.execute(
        update(alert_rules)
        .where(of_tenant(alert_rules, tenant_id), alert_rules.c.rule_id == row.rule_id)
        .values(**values_of(row))
    )


async def remove_rule(connection: AsyncConnection, tenant_id: str, rule_id: str) -> None:
    await connection.execute(
        delete(alert_rules).where(
            of_tenant(alert_rules, tenant_id), alert_rules.c.rule_id == rule_id
        )
    )


async def fired(connection: AsyncConnection, tenant_id: str, seen: StoredRule, now: int) -> bool:
    """Record that the rule fires now. Return False if the rule has changed since it was read as
    `seen`, or if another process fired it first."""
    last = alert_rules.c.last_fired_at
    done = await connection.execute(
        update(alert_rules)
        .where(
            of_tenant(alert_rules, tenant_id),
            alert_rules.c.rule_id == seen.rule_id,
            # Replicas evaluate the same rule. Only the one that still finds the row as it read it
            # sends the alert, so it is sent once.
            alert_rules.c.updated_at == seen.updated_at,
            alert_rules.c.enabled,
            last.is_(None) if seen.last_fired_at is None else last == seen.last_fired_at,
        )
        .values(last_fired_at=now)
    )
    return bool(done.rowcount == 1)


Channel = Literal["webhook", "email", "none"]
DeliveryStatus = Literal["pending", "delivered", "failed", "no_destination"]


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A row for the delivery of a fired alert. `address` is its destination and `secret` its
    signing key; only `target`, the destination without secret parts, may be shown.
    `next_attempt_at` is None once the delivery is settled."""

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


async def add_deliveries(
    connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredDelivery]
) -> None:
    values = [{"tenant_id": tenant_id, **_values(row)} for row in rows]
    await connection.execute(insert(alert_deliveries), values)


async def page_of_deliveries(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredDelivery]:
    """Return a page of the tenant's deliveries, newest first, that begins after the position
    `(fired_at, delivery_id)`."""
    query = select(*_DELIVERY).where(of_tenant(alert_deliveries, tenant_id))
    fired_at, delivery_id = alert_deliveries.c.fired_at, alert_deliveries.c.delivery_id
    query = newest_first(query, fired_at, delivery_id, after, limit)
    return [StoredDelivery.from_row(row) for row in (await connection.execute(query)).mappings()]


async def due_deliveries(
    connection: AsyncConnection, now: int, limit: int, except_to: Sequence[str]
) -> list[tuple[str, StoredDelivery]]:
    """Return the deliveries of all tenants that are due, the longest overdue first. Leave out those
    to the targets in `except_to`."""
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


async def lease_delivery(
    connection: AsyncConnection, tenant_id: str, seen: StoredDelivery, until: int
) -> bool:
    """Claim the delivery for one attempt, until the time `until`. Return False if another process
    has claimed it."""
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


async def settle_delivery(
    connection: AsyncConnection, tenant_id: str, delivery_id: str, **outcome: str | int | None
) -> None:
    """Record the outcome of an attempt: `status`, `last_error` and `next_attempt_at`, which is None
    after the last attempt."""
    await connection.execute(
        update(alert_deliveries)
        .where(
            of_tenant(alert_deliveries, tenant_id), alert_deliveries.c.delivery_id == delivery_id
        )
        .values(**outcome)
    )


async def forget_deliveries(
    connection: AsyncConnection, tenant_id: str, before: int, limit: int
) -> int:
    """Delete at most `limit` settled deliveries of alerts that fired before `before`. Return the
    number of deleted deliveries."""
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
                of_tenant(alert_deliveries, tenant_id), alert_deliveries.c.delivery_id.in_(names)
            )
        )
    return len(names)


def _values(row: StoredDelivery) -> dict[str, Any]:
    return {**values_of(row), "detail": orjson.dumps(row.detail)}
