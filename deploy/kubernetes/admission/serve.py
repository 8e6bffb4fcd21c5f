"""Runs the webhook: opens the health port, waits for a certificate, and opens the HTTPS port; at
the end it stops these in reverse order.

If one of its background loops dies, the process ends. SIGTERM and SIGINT make it drain: it reports
that it is not ready, still accepts reviews for a while, since nodes take some seconds to stop
sending them here, and then finishes the reviews under way. Knows neither the injected parts nor the
environment.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry

from deploy.kubernetes.admission.certificates.controller import CertificateController, utc
from deploy.kubernetes.admission.certificates.stored import CertificateFiles, ServingContext
from deploy.kubernetes.admission.kubernetes import Events, KubernetesApi
from deploy.kubernetes.admission.metrics import WebhookMetrics
from deploy.kubernetes.admission.review import Review
from deploy.kubernetes.admission.server import NamespaceFacts, Reviews, event_of
from deploy.kubernetes.admission.settings import SELF, WebhookSettings
from deploy.kubernetes.admission.vocabulary import Verdict
from policies.ground.addresses import ListenAddress
from policies.ground.clock import Clock
from policies.ground.process.small_server import Listener, Probes

# Objects that may accumulate before the garbage collector runs. A review makes some two thousand,
# which reference counting frees with its answer; by default the collector ran three times for each.
GC_THRESHOLD = 20_000
FINISH_SECONDS = 6.0
"""The seconds that reviews under way may still take at the end. The API server gives up after 5
seconds."""


class Injector(Protocol):
    """Decides about pods by the current template; its loop `run` reads the template file again as
    it changes."""

    def __call__(self, review: Review, facts: NamespaceFacts) -> Verdict: ...

    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The sources of time and randomness, which tests replace. `stop` ends the process when it is
    set; if it is None, SIGTERM and SIGINT do."""

    clock: Clock
    entropy: Callable[[int], bytes]
    stop: asyncio.Event | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """The addresses of the open ports, with the port that the system chose in place of port 0.
    `reviews` is None until there is a certificate to serve."""

    health: ListenAddress
    reviews: ListenAddress | None


class LoopEnded(Exception):
    """a loop ended that should run as long as the process"""


async def serve(
    settings: WebhookSettings,
    injector: Injector,
    dependencies: Dependencies,
    announce: Callable[[Ports], None],
) -> None:
    """Serve reviews until told to stop. `announce` is called each time that a port opens. Raises
    `CannotListen`, or an `ExceptionGroup` if a loop dies."""
    stop = dependencies.stop or _on_signals()
    if settings.calls_api_server:
        async with KubernetesApi(settings.api_server, settings.account_dir) as api:
            await _Webhook(settings, injector, dependencies, api).run(announce, stop)
    else:
        await _Webhook(settings, injector, dependencies, None).run(announce, stop)


class _Webhook:
    """Starts and stops the parts of the process in their order."""

    def __init__(
        self,
        settings: WebhookSettings,
        injector: Injector,
        dependencies: Dependencies,
        api: KubernetesApi | None,
    ) -> None:
        self._settings = settings
        self._clock = dependencies.clock
        self._serving = ServingContext.empty()
        self._registry = CollectorRegistry()
        self._stopping = False
        metrics = WebhookMetrics(self._registry, lambda: self._serving.seconds_left(self._now()))
        self._metrics = metrics
        self._loops: list[Callable[[], Awaitable[None]]] = [injector.run]
        if settings.certificates == SELF and api is not None:
            controller = CertificateController(settings, api, self._serving, metrics, self._clock)
            self._loops.append(controller.run)
        else:
            self._loops.append(CertificateFiles(settings.tls_dir, self._serving, metrics).run)
        self._events: Events | None = None
        if settings.events and api is not None:
            self._events = Events(api, settings.service, metrics, self._clock, dependencies.entropy)
            self._loops.append(self._events.run)
        self._reviews = Reviews(injector, self._report, metrics, self._clock.monotonic)

    async def run(self, announce: Callable[[Ports], None], stop: asyncio.Event) -> None:
        settings = self._settings
        probes = Probes(self._registry, self._not_ready)
        health = await Listener.open(settings.health_listen, "SLUICE_WEBHOOK_HEALTH_LISTEN", probes)
        announce(Ports(health.address, None))
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(_forever(loop)) for loop in self._loops]
            reviews = await self._open_reviews(stop)
            if reviews is not None:
                # Everything loaded so far stays until the end; once frozen, the collector skips it.
                gc.collect()
                gc.freeze()
                gc.set_threshold(GC_THRESHOLD)
                announce(Ports(health.address, reviews.address))
                await stop.wait()
                self._stopping = True
                # The port stays open, and each answer closes its connection: the API server's next
                # one goes to another replica, as soon as its node knows.
                reviews.refuse_keep_alive()
                await asyncio.sleep(settings.drain_seconds)
                await reviews.drain(FINISH_SECONDS)
            self._reviews.close()
            for task in loops:
                task.cancel()
        await health.drain(0)

    async def _open_reviews(self, stop: asyncio.Event) -> Listener | None:
        """Open the HTTPS port as soon as there is a certificate. Returns None if the process is
        stopped before that."""
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(each) for each in (self._serving.arrived(), _wait(stop))]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        if stop.is_set():
            return None
        address, gauge = self._settings.listen, self._metrics.connections
        return await Listener.open(
            address, "SLUICE_WEBHOOK_LISTEN", self._reviews, gauge, self._serving
        )

    def _report(self, review: Review, verdict: Verdict) -> None:
        if self._events is not None and (event := event_of(review, verdict)) is not None:
            self._events.put(event)

    def _not_ready(self) -> str | None:
        if self._stopping:
            return "stopping"
        if self._serving.seconds_left(self._now()) is None:
            return "there is no certificate yet"
        return None if self._serving.valid(self._now()) else "the certificate is not valid now"

    def _now(self) -> dt.datetime:
        return utc(self._clock.now)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _forever(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
    raise LoopEnded(f"loop `{getattr(loop, '__qualname__', loop)}` ended")


def _on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
