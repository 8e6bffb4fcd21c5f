"""Queues the tenants whose policy set in Redis may differ from the store's, and updates them.

    published > a task for the tenant, at once > compare-and-set > done
                                                  | the set was not where expected: reconcile
                                                  | Redis or the store is down: retry

At most one task runs per tenant; publications that arrive while it runs are merged and wait. During
an outage only the tenants are remembered, not their changes: a reconciliation finds the difference.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from control_api.metrics.labels import Pushing
from control_api.metrics.metrics import RedisMetrics
from control_api.policy.publishing.reconcile import Reconciler
from control_api.policy.publishing.redis_client import RedisFault
from control_api.policy.publishing.redis_sets import (
    RedisSets,
    SetChanged,
    SetLocked,
    SetSigner,
    one_step,
)
from control_api.store.errors import WriteFault
from control_api.store.group_commit import start_task
from control_api.store.set_nodes import root_digest
from control_api.store.transaction import Published
from policies.ground.errors import SluiceError
from policies.ground.process.outage_logger import OutageLogger
from policies.sets.redis_keys import HISTORY, document_field, node_field
from policies.sets.signed_head import MAX_CHANGED_NAMES, SetHead

MAX_DOCUMENTS = 500
"""The most changed documents that may wait for a tenant. If there are more, they are dropped, and a
reconciliation finds the difference."""
MAX_SUSPECT = 256
"""The most suspect fields that may wait for a tenant. Further ones are dropped."""


@dataclass(slots=True)
class PushJob:
    """A pending update of a tenant's policy set in Redis. `published` is the publication to write;
    None means that the set must be reconciled with the store. `since` is when the set began to lag,
    on the monotonic clock. `suspect` holds fields that sidecars report as wrong."""

    published: Published | None
    since: float
    suspect: set[bytes] = field(default_factory=set)

    def merge(self, published: Published | None, suspect: Iterable[bytes]) -> None:
        """Merge a later update into this one. If the two don't follow on each other, the result is
        a reconciliation."""
        self.suspect.update(islice(suspect, max(0, MAX_SUSPECT - len(self.suspect))))
        before, self.published = self.published, None
        if before is None or published is None:
            return  # the change is not known
        if published.since != before.revision:
            return  # another replica has published in between: only the store knows its change
        if len(before.documents) > MAX_DOCUMENTS:
            return
        documents, nodes = before.documents | published.documents, before.nodes | published.nodes
        self.published = Published(before.since, published.revision, documents, nodes)


MAX_PUSHES = 16
"""The most tenants whose publications are pushed at the same time."""
MAX_RECONCILES = 4
"""The most tenants that are reconciled at the same time. They are few, because each holds a
database connection."""
TRIES = 4
"""The most consecutive attempts to reconcile a set while another replica keeps changing it."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""The shortest and the longest pause between retries, in seconds. The pause doubles each time."""
_log = logging.getLogger("sluice.publishing")


class PushQueue:
    """Queues the updates of all tenants' policy sets in Redis, and carries them out."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        sets: RedisSets,
        reconciler: Reconciler,
        signer: SetSigner,
        metrics: RedisMetrics,
        monotonic: Callable[[], float],
        outage: OutageLogger,
    ) -> None:
        self._group, self._sets, self._reconciler = group, sets, reconciler
        self._signer, self._metrics = signer, metrics
        self._monotonic, self._outage = monotonic, outage
        self._waiting: dict[str, PushJob] = {}
        self._active: set[str] = set()
        self._push_slots = asyncio.Semaphore(MAX_PUSHES)
        self._reconcile_slots = asyncio.Semaphore(MAX_RECONCILES)
        self._closed = False
        metrics.behind.set_function(lambda: len(self._active | self._waiting.keys()))
        metrics.behind_seconds.set_function(self._lag)

    def published(self, tenant_id: str, published: Published) -> None:
        """Queue a publication that the store has committed. This neither waits nor raises."""
        # During an outage documents would pile up in memory. Afterwards a reconciliation finds what
        # Redis has missed.
        self._enqueue(tenant_id, None if self._outage.ongoing else published, ())
        self._start(tenant_id)

    def recheck(self, tenant_id: str, suspect: Iterable[bytes] = ()) -> None:
        """Queue a reconciliation of the tenant's set with the store. `suspect` holds fields that
        sidecars report as wrong."""
        self._enqueue(tenant_id, None, suspect)
        self._start(tenant_id)

    def pushing(self, tenant_id: str) -> bool:
        """Return whether an update of the tenant's set is waiting or under way."""
        return tenant_id in self._active or tenant_id in self._waiting

    @property
    def busy(self) -> bool:
        """Return whether an update is under way."""
        return bool(self._active)

    async def run(self) -> None:
        """Retry failed updates until `close` is called: first those of one tenant, and the others
        once that one succeeds."""
        pause = FIRST_PAUSE
        while not self._closed:
            await asyncio.sleep(pause)
            idle = [tenant_id for tenant_id in self._waiting if tenant_id not in self._active]
            if not idle:
                pause = FIRST_PAUSE
                continue
            # One tenant is enough to find out whether Redis is back. If all were tried, all would
            # time out together.
            self._active.add(idle[0])
            if await self._drain(idle[0]) or not self._outage.ongoing:
                pause = FIRST_PAUSE
                for tenant_id in idle[1:]:
                    self._start(tenant_id, during_outage=True)
            else:
                pause = min(LONGEST_PAUSE, 2 * pause)

    def close(self) -> None:
        """Start no further updates. Another replica pushes what is left."""
        # Cancelling the task is not enough: Python 3.11 loses a cancellation that arrives just as a
        # write to Redis completes.
        self._closed = True

    def _enqueue(
        self, tenant_id: str, published: Published | None, suspect: Iterable[bytes]
    ) -> None:
        if (job := self._waiting.get(tenant_id)) is not None:
            job.merge(published, suspect)
        else:
            self._waiting[tenant_id] = PushJob(published, self._monotonic(), set(suspect))

    def _start(self, tenant_id: str, *, during_outage: bool = False) -> None:
        held_back = self._outage.ongoing and not during_outage
        if tenant_id in self._active or self._closed or held_back:
            return
        self._active.add(tenant_id)
        try:
            start_task(self._group, self._drain(tenant_id))
        except WriteFault:
            # The service is stopping. The replica that next answers one of the tenant's sidecars
            # finds that the set is behind.
            self._active.discard(tenant_id)

    async def _drain(self, tenant_id: str) -> bool:
        """Process the tenant's updates until none is waiting. Return False if one failed."""
        try:
            while (job := self._waiting.pop(tenant_id, None)) is not None:
                if not await self._process(tenant_id, job):
                    return False
            return True
        finally:
            self._active.discard(tenant_id)

    async def _process(self, tenant_id: str, job: PushJob) -> bool:
        try:
            outcome = await self._update(tenant_id, job)
        except SetChanged:
            # Another replica is updating the set, so it may be current at the next try. This is no
            # outage, and is not counted as a failure.
            self._requeue(tenant_id, job)
            return False
        except (RedisFault, SluiceError) as error:
            self._failed(tenant_id, job)
            self._outage.failing(error)
            return False
        except Exception:  # noqa: BLE001  logged with its trace, and retried
            # One tenant's fault must not stop the others' updates, nor the service.
            self._failed(tenant_id, job)
            _log.exception("the policy set of `%s` can't be pushed", tenant_id)
            return False
        self._outage.recovered()
        self._metrics.pushes.labels(outcome).inc()
        self._metrics.push_seconds.observe(self._monotonic() - job.since)
        return True

    async def _update(self, tenant_id: str, job: PushJob) -> Pushing:
        if job.published is not None:
            async with self._push_slots:
                pushed = await self._push(tenant_id, job.published)
            # A push reads no fields from Redis, so suspect ones still need a reconciliation.
            if pushed and not job.suspect:
                return Pushing.pushed
        async with self._reconcile_slots:
            for _ in range(TRIES - 1):
                try:
                    return await self._reconciler.reconcile(tenant_id, job.suspect)
                except SetLocked:
                    raise  # the other replica rebuilds the set: don't compete with it
                except SetChanged:
                    continue
            return await self._reconciler.reconcile(tenant_id, job.suspect)

    async def _push(self, tenant_id: str, published: Published) -> bool:
        """Write one publication to Redis. Return False if it is too large for one step, or if the
        set is not at the revision that the publication is based on."""
        fields = {document_field(name): body for name, body in published.documents.items()}
        fields |= {node_field(node): body for node, body in published.nodes.items()}
        # The reconciliation writes a larger change in pieces, under a lock.
        if not one_step(fields):
            return False
        changed = tuple(sorted(published.documents))
        names = changed if len(changed) <= MAX_CHANGED_NAMES else None
        state = (published.since, published.revision, root_digest(published.nodes))
        head = SetHead(tenant_id, self._signer.epoch, *state, names)
        # A new tenant's first publication is based on no revision: there is no set in Redis yet.
        return await self._sets.move(
            tenant_id,
            self._signer.at(published.since) if published.since else None,
            fields | {HISTORY: self._signer.history},
            at=self._signer.at(published.revision),
            head=head.sealed(self._signer.ring.signer),
        )

    def _failed(self, tenant_id: str, job: PushJob) -> None:
        self._metrics.pushes.labels(Pushing.failed).inc()
        self._requeue(tenant_id, job)

    def _requeue(self, tenant_id: str, job: PushJob) -> None:
        """Queue a failed update again, merged with those that arrived meanwhile. `job.since` stays,
        so that the lag is measured from its beginning."""
        # The write may have reached Redis although its answer was lost. The state of the set is
        # therefore unknown, and the next attempt reconciles.
        later = self._waiting.get(tenant_id)
        job.merge(None, () if later is None else later.suspect)
        self._waiting[tenant_id] = job

    def _lag(self) -> float:
        """Return for how many seconds the oldest waiting update has waited. Updates that are
        running don't count."""
        first = min((job.since for job in self._waiting.values()), default=None)
        return 0.0 if first is None else self._monotonic() - first
