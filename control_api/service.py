"""Shows the service itself: its health, readiness, metrics, and the API's description.

None of these operations needs a key, so they show no path and no secret.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry

from control_api.audit.proof_models import Ready, SelfVerified, SoftwareVersion
from control_api.edge.answers import Document, Ok, Redirect
from control_api.edge.openapi import Description
from control_api.edge.requests import EmptyRequest
from control_api.edge.route import OPEN, Route
from control_api.log.scheduled.loop import SelfVerification
from control_api.metrics.metrics import CONTENT_TYPE, exposition
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.store.queries import tenant_rows
from control_api.store.store import Store
from policies import __version__
from policies.ground.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Service:
    """The objects that these operations work with. `peer_metrics` is None in a single process;
    `describe` renders the API's description at its first call; `stopping` is set once the service
    drains."""

    store: Store
    registry: CollectorRegistry
    peer_metrics: PeerMetrics | None
    describe: Callable[[], Awaitable[Description]]
    verification: SelfVerification
    console: bool
    stopping: asyncio.Event


async def show_openapi(service: Service, _caller: None, _: EmptyRequest) -> Document:
    """Describe the API (OpenAPI 3.1)."""
    return (await service.describe()).openapi


async def show_docs(service: Service, _caller: None, _: EmptyRequest) -> Document:
    """Show a page to read the description and try operations; it loads nothing else."""
    return (await service.describe()).page


async def show_start(service: Service, _caller: None, _: EmptyRequest) -> Redirect:
    """Redirect a browser to the console, or to `/docs` if that is switched off."""
    return Redirect("console" if service.console else "docs")


async def show_metrics(service: Service, _caller: None, _: EmptyRequest) -> Document:
    """Show the metrics as Prometheus text."""
    # With several workers, the one that is scraped answers for all of them.
    if service.peer_metrics is not None:
        return Document(CONTENT_TYPE, await service.peer_metrics.exposition())
    return Document(CONTENT_TYPE, exposition(service.registry))


@dataclass(frozen=True, slots=True)
class Alive:
    """The service is alive; `version` is the software's version."""

    status: Ok
    version: SoftwareVersion

    example: ClassVar[dict[str, Any]] = {"status": "ok", "version": "0.1.0"}


async def show_liveness(service: Service, _caller: None, _: EmptyRequest) -> Alive:  # noqa: ARG001
    """Report that the process is running."""
    return Alive("ok", __version__)


async def show_readiness(service: Service, _caller: None, _: EmptyRequest) -> Ready:
    """Report whether requests can be served now; otherwise say what is not ready, and why.

    A log that does not verify is shown, and does not end readiness: decisions go on.
    """
    if service.stopping.is_set():
        raise Unavailable("not ready", details="service: it is draining")
    # Redis and the policy files don't count: the service still decides without them.
    try:
        async with service.store.reading_all_tenants() as connection:
            await tenant_rows.installed(connection)
    except Unavailable as error:
        raise Unavailable("not ready", details=f"store: {error.message}") from error
    return Ready("ok", __version__, SelfVerified(**service.verification.answer()))  # type: ignore[arg-type]


# Named, because it may move to a port of its own (`routes_of`).
METRICS = Route("GET", "/metrics", OPEN, show_metrics, content_type="text/plain")

ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", OPEN, show_liveness),
    Route("GET", "/health/ready", OPEN, show_readiness, errors=(503,)),
    METRICS,
    Route("GET", "/openapi.json", OPEN, show_openapi),
    Route("GET", "/docs", OPEN, show_docs, content_type="text/html"),
    Route("GET", "/", OPEN, show_start, 302, content_type="text/plain"),
)
