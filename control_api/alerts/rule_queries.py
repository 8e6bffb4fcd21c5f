"""Queries over alert rules. Does not know what a rule measures."""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import RowMapping, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries.rows import Position, columns_of, newest_first, values_of
from control_api.store.schema.features import alert_rules
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.schema.tables import tenants

RuleType = Literal[
    "denial_spike", "new_source_access", "isolation_violation", "high_deny_rate", "doubtful_time"
]


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule's row. Times are in microseconds. `repr` shows no secret."""

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

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredRule":
        return cls(**row)

    def __repr__(self) -> str:
        return f"StoredRule({self.rule_id!r})"


_RULE = columns_of(alert_rules)


async def rule(connection: AsyncConnection, tenant_id: str, rule_id: str) -> StoredRule | None:
    query = select(*_RULE).where(
        of_tenant(alert_rules, tenant_id), alert_rules.c.rule_id == rule_id
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else StoredRule.from_row(row)


async def page(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredRule]:
    """A page of rules, newest first, after `(created_at, rule_id)`."""
    query = select(*_RULE).where(of_tenant(alert_rules, tenant_id))
    query = newest_first(query, alert_rules.c.created_at, alert_rules.c.rule_id, after, limit)
    return [StoredRule.from_row(row) for row in (await connection.execute(query)).mappings()]


async def enabled(connection: AsyncConnection, tenant_id: str) -> list[StoredRule]:
    query = select(*_RULE).where(of_tenant(alert_rules, tenant_id), alert_rules.c.enabled)
    return [StoredRule.from_row(row) for row in (await connection.execute(query)).mappings()]


async def count(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(func.count()).where(of_tenant(alert_rules, tenant_id))
    return (await connection.execute(query)).scalar_one()


async def watched(connection: AsyncConnection) -> dict[str, int]:
    """The active tenants that have an enabled rule, each with the size of its log."""
    # Only a log that has grown since the last look needs measuring.
    having = select(alert_rules.c.tenant_id).where(alert_rules.c.enabled).distinct().subquery()
    query = (
        select(having.c.tenant_id, log_heads.c.size)
        .join(log_heads, of_tenant(log_heads, having.c.tenant_id))
        .join(tenants, of_tenant(tenants, having.c.tenant_id))
        .where(tenants.c.active)
    )
    return {tenant_id: size for tenant_id, size in await connection.execute(query)}  # noqa: C416


async def add(connection: AsyncConnection, tenant_id: str, row: StoredRule) -> None:
    await connection.execute(insert(alert_rules).values(tenant_id=tenant_id, **values_of(row)))


async def put(connection: AsyncConnection, tenant_id: str, row: StoredRule) -> None:
    """Replaces the row of the same id."""
    await connection.execute(
        update(alert_rules)
        .where(of_tenant(alert_rules, tenant_id), alert_rules.c.rule_id == row.rule_id)
        .values(**values_of(row))
    )


async def remove(connection: AsyncConnection, tenant_id: str, rule_id: str) -> bool:
    """Deletes the rule. Returns whether it existed."""
    done = await connection.execute(
        delete(alert_rules).where(
            of_tenant(alert_rules, tenant_id), alert_rules.c.rule_id == rule_id
        )
    )
    return bool(done.rowcount)


async def fired(connection: AsyncConnection, tenant_id: str, seen: StoredRule, now: int) -> bool:
    """Records that the rule fires now. Returns False if the rule has changed since it was read as
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
