"""Logs who changed what. Knows neither what was changed nor who may change it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from control_api.store.transaction import Transaction
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.trail.change import ObjectChange, change_record


@dataclass(frozen=True, slots=True)
class Changes:
    """Makes ids for entries of the log, and the entries of changes. `entropy(n)` returns n random
    bytes."""

    clock: Clock
    entropy: Callable[[int], bytes]

    def new_id(self) -> str:
        """A new UUIDv7, for an event or another log entry."""
        return uuid7(self.clock.now(), self.entropy(10))

    async def record(
        self,
        tx: Transaction,
        what: str,
        target: str,
        by: str,
        detail: dict[str, Any],
        change: ObjectChange,
    ) -> None:
        """Log who changed what, in the transaction of the change: neither is ever stored without
        the other. `detail` and `change` must hold no secret, because the log would keep it."""
        record_id = self.new_id()
        await tx.append(change_record(what, target, by, detail, record_id=record_id, change=change))
