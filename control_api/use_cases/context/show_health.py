"""Reports whether the process is alive and ready. It needs no key, so it shows no path and no
secret."""

from control_api.app_context import AppContext
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import Alive
from control_api.responses.checkpoints import Ready, SelfVerified
from control_api.store.queries import tenants
from policies import __version__
from policies.ground.errors import Unavailable


async def show_liveness(app: AppContext, _caller: None, _: EmptyRequest) -> Alive:  # noqa: ARG001
    """Report that the process is running."""
    return Alive("ok", __version__)


async def show_readiness(app: AppContext, _caller: None, _: EmptyRequest) -> Ready:
    """Report whether requests can be served now; otherwise say what is not ready, and why.

    A log that does not verify is shown, and does not end readiness: decisions go on.
    """
    if app.stopping.is_set():
        raise Unavailable("not ready", details="service: it is draining")
    # Redis and the policy files don't count: the service still decides without them.
    try:
        async with app.store.reading_all_tenants() as connection:
            await tenants.installed(connection)
    except Unavailable as error:
        raise Unavailable("not ready", details=f"store: {error.message}") from error
    return Ready("ok", __version__, SelfVerified(**app.self_verification))  # type: ignore[arg-type]
