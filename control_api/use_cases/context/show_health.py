"""Whether the service is alive, and whether it can do its work. Shows no path and no secret."""

from control_api.app_context import AppContext
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import Alive
from control_api.store.queries import tenants
from policies import __version__
from policies.ground.errors import Unavailable


async def show_liveness(service: AppContext, _caller: None, _: EmptyRequest) -> Alive:  # noqa: ARG001
    """Answer that the process runs."""
    return Alive("ok", __version__)


async def show_readiness(service: AppContext, _caller: None, _: EmptyRequest) -> Alive:
    """Answer whether requests can be served now; otherwise say what is not ready, and why."""
    if service.stopping.is_set():
        raise Unavailable("not ready", details="service: it is draining")
    try:
        async with service.store.reading_all_tenants() as connection:
            await tenants.installed(connection)
    except Unavailable as error:
        raise Unavailable("not ready", details=f"store: {error.message}") from error
    return Alive("ok", __version__)
