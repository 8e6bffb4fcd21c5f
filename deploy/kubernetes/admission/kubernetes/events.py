"""Tells a pod's owner what became of it, by a Kubernetes Event: `kubectl describe` of its
ReplicaSet or Job then shows why its pods have a sidecar, or have none.

A review never waits for an Event. Events wait in a bounded queue, are sent one after another at a
limited rate, and are dropped and counted when the queue is full. An owner that creates five hundred
pods gets one Event, not five hundred.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from deploy.kubernetes.admission.kubernetes.api import ApiFault, KubernetesApi
from deploy.kubernetes.admission.metrics import EventOutcome, WebhookMetrics
from policies.ground.clock import Clock

MAX_QUEUED = 256
MAX_REMEMBERED = 4096
REPEAT_SECONDS = 600.0
PAUSE_SECONDS = 0.1
"""At most ten Events a second: they share the API server with everything else."""
MAX_NOTE = 1000
# RFC 1123: the name becomes a part of a path. Who sends reviews is not known for certain.
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_log = logging.getLogger("sluice.webhook")


class EventReason(StrEnum):
    """What `kubectl get events` shows as the reason."""

    injected = "Injected"
    skipped = "InjectionSkipped"


@dataclass(frozen=True, slots=True)
class Event:
    """One message about an object. `owner` is a reference to it, as `involvedObject` holds it."""

    namespace: str
    owner: tuple[tuple[str, str], ...]
    reason: EventReason
    note: str


class Events:
    """The queue of Events of one replica, and the loop that sends them."""

    def __init__(
        self,
        api: KubernetesApi,
        component: str,
        metrics: WebhookMetrics,
        clock: Clock,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._api = api
        self._component = component
        self._count = metrics.events.labels
        self._clock = clock
        self._entropy = entropy
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED)
        self._sent: OrderedDict[Event, float] = OrderedDict()
        """When each Event was last sent, the latest at the end."""

    def put(self, event: Event) -> None:
        """Send the Event in its turn, or count why not. Returns at once."""
        if not _NAMESPACE.match(event.namespace):
            self._count(EventOutcome.failed).inc()
            return
        now = self._clock.monotonic()
        if now - self._sent.get(event, float("-inf")) < REPEAT_SECONDS:
            self._count(EventOutcome.repeated).inc()
            return
        if self._queue.full():
            self._count(EventOutcome.dropped).inc()
            return
        self._queue.put_nowait(event)
        self._sent[event] = now
        self._sent.move_to_end(event)
        if len(self._sent) > MAX_REMEMBERED:
            self._sent.popitem(last=False)

    async def run(self) -> None:
        """Send what is queued, forever. An Event that fails is not sent again."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except ApiFault as error:
                # Also when the namespace is gone, or is being deleted.
                self._count(EventOutcome.failed).inc()
                _log.debug("an Event was not sent: %s", error)
            else:
                self._count(EventOutcome.sent).inc()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _send(self, event: Event) -> None:
        # `core/v1` instead of `events.k8s.io/v1`: it takes an owner without a name, and is what
        # kubectl shows in either case.
        name = f"{dict(event.owner).get('name') or 'pod'}"[:200]
        moment = dt.datetime.fromtimestamp(self._clock.now() / 1_000_000, dt.UTC)
        seconds = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        value: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{name}.{self._entropy(8).hex()}",
                "namespace": event.namespace,
            },
            "involvedObject": {**dict(event.owner), "namespace": event.namespace},
            "reason": event.reason.value,
            "message": event.note[:MAX_NOTE],
            "type": "Normal" if event.reason is EventReason.injected else "Warning",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": seconds,
            "lastTimestamp": seconds,
            "count": 1,
        }
        await self._api.create(f"/api/v1/namespaces/{event.namespace}/events", value)
