"""Which sets in Redis are not known to be the store's, and the tasks that bring them there. Knows
no command and no row.

    published > a task for the tenant, at once > compare-and-set > done
                                                  | the set was not where it should be: mended
                                                  | Redis or the store is away: tried again

A tenant is in at most one task; what is published meanwhile waits, as one. What Redis missed while
it was away is not kept: what differs is found when it is back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from control_api.metrics.metrics import Instruments, Pushing
from control_api.publishing.batch import Busy, SetChanged, one_step
from control_api.publishing.reconcile import Reconciler
from control_api.publishing.redis_client import RedisFault
from control_api.publishing.redis_sets import RedisSets
from control_api.publishing.set_signer import SetSigner
from control_api.publishing.state_logger import OutageLogger
from control_api.store.errors import WriteFault
from control_api.store.group_commit import start_task
from control_api.store.set_nodes import root_digest
from control_api.store.transaction import Published
from policies.ground.errors import SluiceError
from policies.sets.redis_keys import HISTORY, document_field, node_field
from policies.sets.signed_head import MAX_CHANGED_NAMES, SetHead

PUSHES = 16
MENDS = 4
"""Tenants at once; a mend holds a connection of the store's."""
TOGETHER = 500
"""Documents that wait for a tenant; with more than those, what differs is looked for."""
TRIES = 4
DOUBTED = 256
"""Fields of a tenant that sidecars may doubt at a time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between tries: doubled each time."""
_log = logging.getLogger("sluice.publishing")


@dataclass(slots=True)
class PushJob:
    """What a tenant's set is to be brought to: one publication, or None for whatever the store
    holds. `since` is when it began to lag behind, on the monotonic clock."""

    published: Published | None
    since: float
    doubted: set[bytes] = field(default_factory=set)

    def join(self, published: Published | None, doubted: Iterable[bytes]) -> None:
        """Both at once."""
        for each in doubted:
            if len(self.doubted) < DOUBTED:
                self.doubted.add(each)
        before = self.published
        if before is None or published is None or published.since != before.revision:
            # Without a publication, or with one of another replica in between: it will be looked.
            self.published = None
            return
        if len(before.documents) > TOGETHER:
            self.published = None
            return
        self.published = Published(
            before.since,
            published.revision,
            before.documents | published.documents,
            before.nodes | published.nodes,
        )


class PushQueue:
    """Of all tenants."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        sets: RedisSets,
        mender: Reconciler,
        seal: SetSigner,
        instruments: Instruments,
        monotonic: Callable[[], float],
        trouble: OutageLogger,
    ) -> None:
        self._group = group
        self._sets = sets
        self._mender = mender
        self._seal = seal
        self._instruments = instruments
        self._monotonic = monotonic
        self._trouble = trouble
        self._waiting: dict[str, PushJob] = {}
        self._active: set[str] = set()
        self._room = asyncio.Semaphore(PUSHES)
        self._mending = asyncio.Semaphore(MENDS)
        self._closed = False
        instruments.behind.set_function(self._behind)
        instruments.behind_seconds.set_function(self._lag)

    def published(self, tenant_id: str, published: Published) -> None:
        """The store's listener. It neither waits nor raises."""
        self._put(tenant_id, None if self._trouble.lasts else published, ())
        self._start(tenant_id)

    def look(self, tenant_id: str, doubted: Iterable[bytes] = ()) -> None:
        """The tenant's set may not be the store's."""
        self._put(tenant_id, None, doubted)
        self._start(tenant_id)

    def pushing(self, tenant_id: str) -> bool:
        """Whether its set is being brought to where it should be already."""
        return tenant_id in self._active or tenant_id in self._waiting

    @property
    def busy(self) -> bool:
        """Whether anything is on its way to Redis."""
        return bool(self._active)

    async def run(self) -> None:
        """Try again what failed, for ever: one tenant first, and all as soon as that went well."""
        pause = FIRST_PAUSE
        while not self._closed:
            await asyncio.sleep(pause)
            idle = [tenant_id for tenant_id in self._waiting if tenant_id not in self._active]
            if not idle:
                pause = FIRST_PAUSE
                continue
            self._active.add(idle[0])
            if await self._drain(idle[0]) or not self._trouble.lasts:
                pause = FIRST_PAUSE
                for tenant_id in idle[1:]:
                    self._start(tenant_id, again=True)
            else:
                pause = min(LONGEST_PAUSE, 2 * pause)

    def close(self) -> None:
        """Begin nothing more. The service stops: what was not pushed is found by the next. A flag
        too, since on Python 3.11 a cancellation is lost that meets the end of a write to Redis."""
        self._closed = True

    def _put(self, tenant_id: str, published: Published | None, doubted: Iterable[bytes]) -> None:
        if (job := self._waiting.get(tenant_id)) is not None:
            job.join(published, doubted)
        else:
            self._waiting[tenant_id] = PushJob(published, self._monotonic(), set(doubted))

    def _start(self, tenant_id: str, *, again: bool = False) -> None:
        if tenant_id in self._active or self._closed or (self._trouble.lasts and not again):
            return
        self._active.add(tenant_id)
        try:
            start_task(self._group, self._drained(tenant_id))
        except WriteFault:
            self._active.discard(tenant_id)

    async def _drained(self, tenant_id: str) -> None:
        await self._drain(tenant_id)

    async def _drain(self, tenant_id: str) -> bool:
        """Until nothing of the tenant waits; False where something went wrong."""
        try:
            while (job := self._waiting.pop(tenant_id, None)) is not None:
                if not await self._turn(tenant_id, job):
                    return False
            return True
        finally:
            self._active.discard(tenant_id)

    async def _turn(self, tenant_id: str, job: PushJob) -> bool:
        try:
            outcome = await self._bring(tenant_id, job)
        except SetChanged:
            # Others commit, or rebuild it: for us there may be nothing left to do in a moment.
            self._again(tenant_id, job)
            return False
        except (RedisFault, SluiceError) as error:
            self._failed(tenant_id, job)
            self._trouble.is_(error)
            return False
        except Exception:  # noqa: BLE001  logged whole, and tried again
            # One tenant must not hold up the others, nor all of them those who decide.
            self._failed(tenant_id, job)
            _log.exception("the policy set of `%s` can't be pushed", tenant_id)
            return False
        self._trouble.over()
        self._instruments.pushes.labels(outcome).inc()
        self._instruments.push_seconds.observe(self._monotonic() - job.since)
        return True

    async def _bring(self, tenant_id: str, job: PushJob) -> Pushing:
        if job.published is not None:
            async with self._room:
                pushed = await self._push(tenant_id, job.published)
            if pushed and not job.doubted:
                return Pushing.pushed
        async with self._mending:
            for _ in range(TRIES - 1):
                try:
                    return await self._mender.mend(tenant_id, job.doubted)
                except Busy:
                    raise
                except SetChanged:
                    continue
            return await self._mender.mend(tenant_id, job.doubted)

    async def _push(self, tenant_id: str, published: Published) -> bool:
        """False where the set does not stand where this publication begins."""
        fields = {document_field(name): body for name, body in published.documents.items()}
        fields |= {node_field(node): body for node, body in published.nodes.items()}
        if not one_step(fields):
            return False
        names = tuple(sorted(published.documents))
        head = SetHead(
            tenant_id,
            self._seal.epoch,
            published.since,
            published.revision,
            root_digest(published.nodes),
            names if len(names) <= MAX_CHANGED_NAMES else None,
        )
        return await self._sets.move(
            tenant_id,
            self._seal.at(published.since) if published.since else None,
            fields | {HISTORY: self._seal.history},
            at=self._seal.at(published.revision),
            head=head.sealed(self._seal.ring.signer),
        )

    def _failed(self, tenant_id: str, job: PushJob) -> None:
        self._instruments.pushes.labels(Pushing.failed).inc()
        self._again(tenant_id, job)

    def _again(self, tenant_id: str, job: PushJob) -> None:
        """With what came meanwhile; it lags behind since the first of them."""
        self._put(tenant_id, None, job.doubted)
        waiting = self._waiting[tenant_id]
        waiting.published, waiting.since = None, job.since

    def _behind(self) -> int:
        return len(self._active | self._waiting.keys())

    def _lag(self) -> float:
        """Of tenants in a task nothing is known here but that they are on their way."""
        first = min((job.since for job in self._waiting.values()), default=None)
        return 0.0 if first is None else self._monotonic() - first
