"""The loops of alerts, turned by hand: on a bare store, without the service around them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from control_api.alerts import queries
from control_api.alerts.channels import Alerts, Mail
from control_api.alerts.deliver import DeliveryLoop
from control_api.alerts.evaluator import AlertEvaluator
from control_api.alerts.queries import StoredDelivery, StoredRule
from control_api.log.append import Changes
from control_api.metrics.metrics import JobMetrics
from control_api.security.egress import AllowedHosts, MailServer
from control_api.store.transaction import Transaction
from tests.support.open_store import TENANT, OpenStore, decision
from tests.support.waiting import until_async

SECRET = "whsec_" + "c2VjcmV0" * 4


@dataclass
class Loops:
    """One process's loops. `mail` is the port of its mail server."""

    world: OpenStore
    mail: int | None = None
    evaluator: AlertEvaluator = field(init=False)
    delivery: DeliveryLoop = field(init=False)

    def __post_init__(self) -> None:
        store = self.world.store
        server = MailServer.parse(f"smtp://127.0.0.1:{self.mail}") if self.mail else None
        alerts = Alerts(
            store=store,
            clock=store.clock,
            entropy=os.urandom,
            changes=Changes(store.clock, os.urandom),
            mail=Mail(server, "sluice@example.com") if server else None,
            allowed_hosts=AllowedHosts.parse("127.0.0.0/8"),
            metrics=JobMetrics(CollectorRegistry()),
        )
        self.evaluator, self.delivery = AlertEvaluator(alerts), DeliveryLoop(alerts)

    async def denied(self, count: int = 1, **asked: Any) -> None:
        for _ in range(count):
            await self.world.log.append(TENANT, decision("DENY", **asked))

    async def rules(self, *rules: StoredRule) -> None:
        async def work(tx: Transaction) -> None:
            for each in rules:
                await queries.add_rule(tx.connection, TENANT, each)

        await self.world.store.write(TENANT, work)

    async def deliver(self, *rows: StoredDelivery) -> None:
        """Store these deliveries, if any, and begin the attempts that are due."""

        async def work(tx: Transaction) -> None:
            await queries.add_deliveries(tx.connection, TENANT, rows)

        if rows:
            await self.world.store.write(TENANT, work)
        await self.delivery.start_due()

    async def fired(self) -> list[StoredDelivery]:
        async with self.world.store.reading(TENANT) as connection:
            return await queries.page_of_deliveries(connection, TENANT, None, 100)

    async def settled(self, delivery_id: str, status: str) -> StoredDelivery:
        """The delivery once it has this status; a pending one once an attempt has failed."""
        found: list[StoredDelivery] = []

        async def done() -> bool:
            await self.delivery.start_due()
            found[:] = [each for each in await self.fired() if each.delivery_id == delivery_id]
            tried = status != "pending" or found[0].last_error is not None
            return found[0].status == status and tried

        await until_async(f"{delivery_id} is {status}", done)
        return found[0]


def rule(rule_type: Any, threshold: int = 1, **fields: Any) -> StoredRule:
    """A rule of this type, under its name."""
    given: dict[str, Any] = {
        "rule_id": f"alr_{rule_type}",
        "name": rule_type,
        "window_minutes": 60,
        "cooldown_minutes": 60,
        "min_events": 5,
        "webhook_url": None,
        "webhook_secret": None,
        "email": None,
        "enabled": True,
        "created_at": 1,
        "updated_at": 1,
    }
    return StoredRule(rule_type=rule_type, threshold=threshold, **{**given, **fields})
