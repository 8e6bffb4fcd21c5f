"""Bounds how many spools each key may begin in a day.

A spool is a row that stays, and each verification of the log follows it. A sidecar begins one at
its first start, and whenever it has lost its volume; who has stolen its key could begin one with
every request. In this process only, and counted once the spool is there: a batch that fails and
comes again counts once.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

from sqlalchemy import select

from control_api.enrolment.buckets import Buckets
from control_api.store.schema.log import sources
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.errors import TooMany

_DAY = 86_400
MAX_PAUSE = 3600
"""The longest `Retry-After`, in seconds."""


class Spool(NamedTuple):
    """A spool of a tenant, and the key that delivers it."""

    tenant_id: str
    key_id: str
    source: str
    instance: str


class TooManySpools(TooMany):
    """the key has begun as many spools as it may"""

    def __init__(self, per_day: int, seconds: float) -> None:
        self.headers = {"Retry-After": str(min(MAX_PAUSE, max(1, ceil(seconds))))}
        super().__init__(
            f"the key has begun as many spools as it may, {per_day} a day "
            "(`SLUICE_NEW_SPOOLS_PER_DAY`): give its sidecars a volume, or keys of their own"
        )


class SpoolStarts:
    """A bucket for each key: `per_day` spools at once, and as many a day after that."""

    def __init__(self, store: Store, clock: Clock, per_day: int) -> None:
        self._store = store
        self._now = clock.monotonic
        self._per_day = per_day
        self._buckets = Buckets(per_day / _DAY, per_day)

    async def begins(self, spool: Spool, records: Sequence[Any]) -> bool:
        """Return whether this batch would begin the spool. Raises `TooManySpools` if the key may
        begin no more, and `ReadFault` if the database does not answer."""
        if not _is_first(records) or await self._exists(spool):
            return False
        if wait := self._buckets.due(spool[:2], self._now()):
            raise TooManySpools(self._per_day, wait)
        return True

    def begun(self, spool: Spool) -> None:
        """Count a spool that was begun."""
        self._buckets.wait(spool[:2], self._now())

    async def _exists(self, spool: Spool) -> bool:
        query = select(sources.c.n).where(
            sources.c.tenant_id == spool.tenant_id,
            sources.c.source == spool.source,
            sources.c.instance == spool.instance,
        )
        async with self._store.reading(spool.tenant_id) as connection:
            return (await connection.execute(query)).first() is not None


def _is_first(records: Sequence[Any]) -> bool:
    """Return whether a batch could begin a spool: it must start with record 0."""
    try:
        return bool(records[0]["core"]["src"]["n"] == 0)
    except (LookupError, TypeError):
        return False
