"""Which part of the service is given to which. Starts nothing."""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry

from control_api.app_context import AppContext, Description
from control_api.caches.tenant_cache import TenantCache
from control_api.http.docs.page import render_page
from control_api.http.openapi import describe
from control_api.http.route import Route
from control_api.http.routes import METRICS, ROUTES
from control_api.log.append import Log
from control_api.maintenance.rollback_recovery import RollbackRecovery
from control_api.metrics.metrics import Instruments
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.publishing.publishing import Publishing
from control_api.responses.audit import Document
from control_api.settings import Settings
from control_api.store.queries.fleet import FleetReports
from control_api.store.queries.sessions import SessionClaimer
from control_api.store.queries.tenants import Installation
from control_api.store.store import Store
from control_api.workers.worker_args import WorkerArgs
from policies import __version__
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.ground.signing import KeyRing


def assemble(
    settings: Settings,
    clock: Clock,
    entropy: Callable[[int], bytes],
    store: Store,
    log: Log,
    installed: Installation,
    ring: KeyRing,
    place: WorkerArgs | None,
) -> AppContext:
    """`place`: which of several processes this is, None where it is the only one."""
    registry = CollectorRegistry()
    instruments = Instruments.on(registry)
    publishing = None
    if url := settings.redis_url:
        put_back = RollbackRecovery(store, settings, lambda: uuid7(clock.now(), entropy(10)))
        publishing = Publishing(
            url, store, ring, installed.epoch, clock, entropy, instruments, put_back.go_on
        )
    siblings = None
    if place is not None:
        count = instruments.unanswered.inc
        siblings = PeerMetrics(settings.data_dir, place.index, place.count, registry, count)
    return AppContext(
        settings=settings,
        clock=clock,
        entropy=entropy,
        store=store,
        log=log,
        sessions=SessionClaimer(store),
        fleet=FleetReports(store),
        tenants=TenantCache(store),
        ring=ring,
        epoch=installed.epoch,
        instruments=instruments,
        registry=registry,
        description=_description(routes_of(settings)),
        publishing=publishing,
        siblings=siblings,
    )


@cache
def _description(routes: tuple[Route, ...]) -> Description:
    """Made once in a process: it takes longer than all the rest of a start, and follows from the
    routes alone."""
    openapi = describe(routes, __version__)
    return Description(Document("application/json", openapi), render_page(openapi))


def routes_of(settings: Settings) -> tuple[Route, ...]:
    """The API's routes: `/metrics` leaves them for a port of its own."""
    return (
        ROUTES if settings.metrics_listen is None else tuple(r for r in ROUTES if r is not METRICS)
    )
