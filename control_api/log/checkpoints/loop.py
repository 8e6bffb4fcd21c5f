"""Keeps every log's checkpoints current: signs busy logs every few seconds, and idle ones hourly.

One query a turn finds the logs that have changed, however many tenants there are. Replicas share
the work without talking to each other: one that finds a checkpoint made a moment ago leaves that
log to the next turn. This module decides when to sign a log; `maker` signs it.
"""

import asyncio
import logging
from collections.abc import Callable

from sqlalchemy import bindparam, or_, select

from control_api.log.checkpoints.expected import Diverged
from control_api.log.checkpoints.maker import CheckpointMaker
from control_api.metrics.labels import Signing
from control_api.store.queries import checkpoints
from control_api.store.queries.checkpoints import StoredCheckpoint
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.errors import SluiceError
from policies.trail.record import log_heartbeat_record

SECOND = 1_000_000
IDLE = 3600 * SECOND
"""The time (microseconds) without an entry after which a log gets a heartbeat entry, and with that
a checkpoint."""
RECENT = 120 * SECOND
"""The most (microseconds) that the clocks of replicas may differ. Each turn looks at the heads that
moved within this time."""
LONGEST_WAIT = 5.0
"""Seconds until a log that diverged, or could not be signed, is tried again at the latest."""
AT_ONCE = 4
"""Logs that are signed at the same time. Each reads and writes over a database connection."""
_log = logging.getLogger("sluice.checkpoints")


class CheckpointLoop:
    """Signs the logs of one store in the background. A busy log gets a checkpoint every `seconds`.
    `published` is called with each new checkpoint, and must return at once."""

    def __init__(
        self,
        store: Store,
        maker: CheckpointMaker,
        seconds: float,
        new_id: Callable[[], str],
        count: Callable[[Signing], None],
        published: Callable[[str, StoredCheckpoint], None] | None = None,
    ) -> None:
        self._store = store
        self._maker = maker
        self._seconds = seconds
        self._new_id = new_id
        self._published = published
        self._count = count
        self._signed: dict[str, int] = {}
        self._compared: dict[str, int] = {}
        self._again: set[str] = set()
        self._idle: set[str] = set()
        self._started = False
        self._look_outside = 0
        self._failing: set[str] = set()

    async def run(self) -> None:
        """Sign logs as long as the app runs. The first turn compares every log with its
        checkpoints."""
        while True:
            await self.once()
            await asyncio.sleep(min(self._seconds, LONGEST_WAIT))

    async def once(self) -> None:
        """Run one turn. A log that fails is tried again in the next turn; the same failure is
        logged only once."""
        try:
            changed = await self._changed()
            self._recovered("")
        except SluiceError as error:
            self._failed("", error)
            return
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for tenant_id in changed:
                await places.acquire()
                task = group.create_task(self._sign(tenant_id))
                task.add_done_callback(lambda _: places.release())

    async def _changed(self) -> list[str]:
        """Return the tenants whose log has grown since it was signed, is idle, or is to be tried
        again."""
        now = self._store.clock.now()
        wanted = {"recent": now - RECENT if self._started else -1, "idle": now - IDLE}
        async with self._store.reading_all_tenants() as connection:
            heads = (await connection.execute(_HEADS, wanted)).all()
        outside: list[str] = []
        if now >= self._look_outside:
            # A log that the database has lost has no head to be found by.
            outside = await self._maker.tenants_outside()
            self._look_outside = now + IDLE
        self._started = True
        changed, self._again = self._again, set()
        self._idle = {row.tenant_id for row in heads if row.size and row.last_ts <= wanted["idle"]}
        changed |= self._idle
        changed.update(outside)
        changed |= {row.tenant_id for row in heads if row.size != self._signed.get(row.tenant_id)}
        return sorted(changed)

    async def _beat(self, tenant_id: str) -> None:
        """Append a heartbeat entry, unless another replica has just done so."""

        async def work(tx: Transaction) -> None:
            query = select(log_heads.c.last_ts).where(of_tenant(log_heads, tenant_id))
            last_ts = (await tx.connection.execute(query)).scalar()
            if last_ts is not None and last_ts <= tx.now - IDLE:
                await tx.append(log_heartbeat_record(record_id=self._new_id()))

        await self._store.write(tenant_id, work)

    async def _sign(self, tenant_id: str) -> None:
        try:
            if tenant_id in self._idle:
                await self._beat(tenant_id)
            if await self._is_signed(tenant_id):
                return
            made = await self._maker.make(tenant_id)
            self._signed[tenant_id] = 0 if made is None else made.size
            self._compared[tenant_id] = self._store.clock.now()
            self._recovered(tenant_id)
            self._count(Signing.signed)
            if made is not None and self._published is not None:
                self._published(tenant_id, made)
        except Diverged:
            self._count(Signing.refused)
            self._again.add(tenant_id)  # the maker has said so, and an operator may accept it
        except SluiceError as error:
            self._count(Signing.failed)
            self._failed(tenant_id, error)
            self._again.add(tenant_id)
        except Exception:  # noqa: BLE001  one tenant's fault must not stop the others
            self._count(Signing.failed)
            _log.exception("no checkpoint of tenant `%s`", tenant_id)
            self._again.add(tenant_id)

    async def _is_signed(self, tenant_id: str) -> bool:
        """Return whether another replica has signed this log a moment ago, so that this turn can
        skip it."""
        # Each process compares each log with the store at its start, and at least once an hour. So
        # a store that only this one uses is never a day behind, which is the shortest retention.
        compared = self._compared.get(tenant_id)
        if compared is None or tenant_id in self._maker.diverged:
            return False
        if self._store.clock.now() - compared >= IDLE:
            return False
        async with self._store.reading(tenant_id) as connection:
            row = await checkpoints.readable_latest(connection, tenant_id)
        if row is None or self._store.clock.now() - row.signed_at > 0.9 * self._seconds * SECOND:
            return False
        self._again.add(tenant_id)
        return True

    def _failed(self, tenant_id: str, error: SluiceError) -> None:
        if tenant_id not in self._failing:
            self._failing.add(tenant_id)
            what = f"of tenant `{tenant_id}`" if tenant_id else "of any tenant"
            _log.warning("no checkpoint %s for now: %s", what, error)

    def _recovered(self, tenant_id: str) -> None:
        if tenant_id in self._failing:
            self._failing.remove(tenant_id)
            whose = f" of tenant `{tenant_id}`" if tenant_id else ""
            _log.warning("recovered: checkpoints%s are made again", whose)


_HEADS = select(log_heads.c.tenant_id, log_heads.c.size, log_heads.c.last_ts).where(
    or_(log_heads.c.last_ts >= bindparam("recent"), log_heads.c.last_ts <= bindparam("idle"))
)
