"""Queries over alert rules and deliveries. Knows nothing of what a rule measures, nor of how a
delivery is made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Row, delete, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema import alert_deliveries, alert_rules, log_heads, tenants


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule's row. Times in microseconds. Its representation shows no secret."""

    rule_id: str
    name: str
    rule_type: str
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

    @classmethod
    def from_row(cls, row: Row[Any]) -> "StoredRule":
        return cls(**row._mapping)

    def __repr__(self) -> str:
        return f"StoredRule({self.rule_id!r})"


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A delivery's row. `address` and `secret` are where it goes and what it is signed with; what
    may be shown is `target`. `next_attempt_at` is None once nothing more is tried."""

    delivery_id: str
    rule_id: str
    rule_name: str
    rule_type: str
    fired_at: int
    detail: dict[str, Any]
    channel: str
    target: str | None
    address: str | None
    secret: str | None
    status: str
    attempts: int
    last_error: str | None
    next_attempt_at: int | None

    @classmethod
    def from_row(cls, row: Row[Any]) -> "StoredDelivery":
        fields = dict(row._mapping)
        return cls(**{**fields, "detail": orjson.loads(fields["detail"])})

    def __repr__(self) -> str:
        return f"StoredDelivery({self.delivery_id!r})"


_RULE = [column for column in alert_rules.c if column.name != "tenant_id"]
_DELIVERY = [column for column in alert_deliveries.c if column.name != "tenant_id"]


async def rule(connection: AsyncConnection, tenant_id: str, rule_id: str) -> StoredRule | None:
    query = select(*_RULE).where(
        alert_rules.c.tenant_id == tenant_id, alert_rules.c.rule_id == rule_id
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else StoredRule.from_row(row)


async def page(
    connection: AsyncConnection, tenant_id: str, after: tuple[Any, ...] | None, limit: int
) -> list[StoredRule]:
    """Newest first, after `(created_at, rule_id)`."""
    query = select(*_RULE).where(alert_rules.c.tenant_id == tenant_id)
    if after is not None:
        query = query.where(tuple_(alert_rules.c.created_at, alert_rules.c.rule_id) < after)
    query = query.order_by(alert_rules.c.created_at.desc(), alert_rules.c.rule_id.desc())
    return [StoredRule.from_row(row) for row in await connection.execute(query.limit(limit))]


async def enabled(connection: AsyncConnection, tenant_id: str) -> list[StoredRule]:
    query = select(*_RULE).where(alert_rules.c.tenant_id == tenant_id, alert_rules.c.enabled)
    return [StoredRule.from_row(row) for row in await connection.execute(query)]


async def count(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(alert_rules.c.rule_id).where(alert_rules.c.tenant_id == tenant_id)
    return len((await connection.execute(query)).all())


async def watched(connection: AsyncConnection) -> dict[str, int]:
    """The active tenants with an enabled rule, and how many entries the log of each has."""
    having = select(alert_rules.c.tenant_id).where(alert_rules.c.enabled).distinct().subquery()
    query = (
        select(having.c.tenant_id, log_heads.c.size)
        .join(log_heads, log_heads.c.tenant_id == having.c.tenant_id)
        .join(tenants, tenants.c.tenant_id == having.c.tenant_id)
        .where(tenants.c.active)
    )
    return {tenant_id: size for tenant_id, size in await connection.execute(query)}  # noqa: C416


async def add(connection: AsyncConnection, tenant_id: str, row: StoredRule) -> None:
    await connection.execute(insert(alert_rules).values(tenant_id=tenant_id, **_values(row)))


async def put(connection: AsyncConnection, tenant_id: str, row: StoredRule) -> None:
    """The row as it is given, in place of that of the same id."""
    await connection.execute(
        update(alert_rules)
        .where(alert_rules.c.tenant_id == tenant_id, alert_rules.c.rule_id == row.rule_id)
        .values(**_values(row))
    )


async def remove(connection: AsyncConnection, tenant_id: str, rule_id: str) -> bool:
    """Whether it was there."""
    done = await connection.execute(
        delete(alert_rules).where(
            alert_rules.c.tenant_id == tenant_id, alert_rules.c.rule_id == rule_id
        )
    )
    return bool(done.rowcount)


async def fired(connection: AsyncConnection, tenant_id: str, seen: StoredRule, now: int) -> bool:
    """Note that the rule fires now. False where it is not what was seen any more: it was changed,
    or another process fired it."""
    last = alert_rules.c.last_fired_at
    done = await connection.execute(
        update(alert_rules)
        .where(
            alert_rules.c.tenant_id == tenant_id,
            alert_rules.c.rule_id == seen.rule_id,
            alert_rules.c.updated_at == seen.updated_at,
            alert_rules.c.enabled,
            last.is_(None) if seen.last_fired_at is None else last == seen.last_fired_at,
        )
        .values(last_fired_at=now)
    )
    return bool(done.rowcount == 1)


async def add_deliveries(
    connection: AsyncConnection, tenant_id: str, rows: Sequence[StoredDelivery]
) -> None:
    values = [
        {"tenant_id": tenant_id, **_values(row), "detail": orjson.dumps(row.detail)} for row in rows
    ]
    await connection.execute(insert(alert_deliveries), values)


async def deliveries(
    connection: AsyncConnection, tenant_id: str, after: tuple[Any, ...] | None, limit: int
) -> list[StoredDelivery]:
    """Newest first, after `(fired_at, delivery_id)`."""
    query = select(*_DELIVERY).where(alert_deliveries.c.tenant_id == tenant_id)
    place = tuple_(alert_deliveries.c.fired_at, alert_deliveries.c.delivery_id)
    if after is not None:
        query = query.where(place < after)
    query = query.order_by(
        alert_deliveries.c.fired_at.desc(), alert_deliveries.c.delivery_id.desc()
    )
    return [StoredDelivery.from_row(row) for row in await connection.execute(query.limit(limit))]


async def due(
    connection: AsyncConnection, now: int, limit: int
) -> list[tuple[str, StoredDelivery]]:
    """Deliveries of any tenant whose time has come, the longest overdue first."""
    query = (
        select(alert_deliveries.c.tenant_id, *_DELIVERY)
        .where(alert_deliveries.c.next_attempt_at <= now)
        .order_by(alert_deliveries.c.next_attempt_at)
        .limit(limit)
    )
    found = []
    for row in await connection.execute(query):
        fields = dict(row._mapping)
        tenant_id = fields.pop("tenant_id")
        found.append(
            (tenant_id, StoredDelivery(**{**fields, "detail": orjson.loads(fields["detail"])}))
        )
    return found


async def lease(
    connection: AsyncConnection, tenant_id: str, seen: StoredDelivery, until: int
) -> bool:
    """Take the delivery for an attempt of ours. False where another process has."""
    done = await connection.execute(
        update(alert_deliveries)
        .where(
            alert_deliveries.c.tenant_id == tenant_id,
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
    """What an attempt came to."""
    await connection.execute(
        update(alert_deliveries)
        .where(
            alert_deliveries.c.tenant_id == tenant_id,
            alert_deliveries.c.delivery_id == delivery_id,
        )
        .values(status=status, last_error=last_error, next_attempt_at=next_attempt_at)
    )


async def forget(connection: AsyncConnection, tenant_id: str, before: int, most: int) -> int:
    """Drop deliveries that were settled and fired before `before`, at most `most`; how many."""
    old = (
        select(alert_deliveries.c.delivery_id)
        .where(
            alert_deliveries.c.tenant_id == tenant_id,
            alert_deliveries.c.fired_at < before,
            alert_deliveries.c.next_attempt_at.is_(None),
        )
        .limit(most)
    )
    names = list((await connection.execute(old)).scalars())
    if names:
        await connection.execute(
            delete(alert_deliveries).where(
                alert_deliveries.c.tenant_id == tenant_id,
                alert_deliveries.c.delivery_id.in_(names),
            )
        )
    return len(names)


def _values(row: StoredRule | StoredDelivery) -> dict[str, Any]:
    return {name: getattr(row, name) for name in type(row).__slots__}
