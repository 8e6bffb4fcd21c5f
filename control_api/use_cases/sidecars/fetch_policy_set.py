"""Serves the changes of a tenant's policy set to a sidecar, by long poll.

If the set has changed since the sidecar's revision, the response is sent at once. Otherwise the
request waits until something is published, at most for as long as the sidecar requested, and then
reads the changes again.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from control_api.app_context import MAX_WAITERS, AppContext
from control_api.auth.principal import Caller
from control_api.caches.page_reads import EncodedPage
from control_api.isolation.speaker import enrolled_agent
from control_api.presenters import policy_set_page
from control_api.requests.base import QueryInt, RequestModel
from control_api.responses.sidecars import PolicySetPage
from policies.ground.errors import Unavailable

MAX_WAIT = 25  # seconds


def _seconds(value: object) -> object:
    """A number in a query, as a float. Anything else passes on, and the strict type refuses it."""
    try:
        return float(value) if isinstance(value, str) and len(value) < 32 else value
    except ValueError:
        return value


class PolicySetRequest(RequestModel):
    """The revision the sidecar has, the store it came from, and how long to wait for a change."""

    since: QueryInt = Field(0, ge=0)
    epoch: str | None = Field(None, max_length=256)
    wait: Annotated[float, BeforeValidator(_seconds)] = Field(0, ge=0, le=MAX_WAIT)


async def fetch_policy_set(
    app: AppContext, caller: Caller, request: PolicySetRequest
) -> PolicySetPage:
    """Fetch what changed in the policy set since a revision; if nothing has, wait for a change.

    An enrolled sidecar is given the documents of its own agent and the tenant's: each page is
    complete, and after a change of the agent begins anew (`reset`).
    """
    # Revisions of another store mean nothing here: the sidecar must drop its copy and start over.
    foreign = request.epoch != app.epoch
    since = 0 if foreign else request.since
    found = await _changes(app, caller, since)
    page = found.page
    if since > page.revision or 0 < since < page.reset_below:
        # The sidecar is ahead of the store, or has a revision from before the store was restored to
        # an older state.
        foreign, found = True, await _changes(app, caller, 0)
    elif not (page.documents or foreign) and request.wait and not app.stopping.is_set():
        # Wait without a connection: thousands of sidecars may wait, and by default a pool has 16.
        await _wait(app, caller, request.wait, page.revision)
        found = await _changes(app, caller, since)
    # Send a page even without documents: it is the heartbeat that tells a sidecar that it is not
    # cut off.
    return policy_set_page(app, caller, found, reset=foreign or found.whole)


async def _changes(app: AppContext, caller: Caller, since: int) -> EncodedPage:
    agent_id = enrolled_agent(caller)
    if agent_id is None:
        return await app.pages.since(caller.tenant_id, since)
    return await app.least_pages.since(caller.tenant_id, agent_id, since)


async def _wait(app: AppContext, caller: Caller, seconds: float, revision: int) -> None:
    """Wait until the tenant's set moves beyond `revision`, or the time is up. Raises `Unavailable`
    if too many sidecars wait already, and `Forbidden` if the key is not valid any longer."""
    if app.waiters.locked():
        raise Unavailable(
            f"{MAX_WAITERS} sidecars are waiting already, the most allowed: try again later"
        )
    async with app.waiters:
        with app.instruments.http.waiting.track_inprogress():
            # A change published since the read has already moved the set: then don't wait.
            if caller.tenant.policy_set.revision <= revision:
                await caller.tenant.wait(seconds)
    # The change that woke us may be the revocation of this very key.
    await caller.require_live(app.clock.now())
