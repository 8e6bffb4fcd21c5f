"""What changed in a tenant's policy set, for a sidecar that waits for it.

    changed since? > answer at once
    else wait, at most as long as asked, until something is published > look again > answer

No news is an answer too: the heartbeat by which a sidecar knows that it is not cut off.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from control_api.app_context import MAX_WAITERS, AppContext
from control_api.auth.principal import Caller
from control_api.presenters import policy_set_page
from control_api.requests.base import QueryInt, RequestModel
from control_api.responses.sidecars import MAX_PAGE_BYTES, PolicySetPage
from control_api.store.queries import documents
from policies.ground.errors import Forbidden, Unavailable

MOST_DOCUMENTS = 512
LONGEST_WAIT = 25


def _seconds(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) and len(value) < 32 else value
    except ValueError:
        return value


class AskedChanges(RequestModel):
    """What the sidecar has: a revision, of the store that `epoch` names; and its patience."""

    since: QueryInt = Field(0, ge=0)
    epoch: str | None = Field(None, max_length=256)
    wait: Annotated[float, BeforeValidator(_seconds)] = Field(0, ge=0, le=LONGEST_WAIT)


async def fetch_policy_set(
    service: AppContext, caller: Caller, asked: AskedChanges
) -> PolicySetPage:
    """Fetch what changed in the policy set since a revision; wait for a change if there is none."""
    # A revision of another store means nothing here: the sidecar empties its copy and begins anew.
    foreign = asked.epoch != service.epoch
    since = 0 if foreign else asked.since
    page = await _read(service, caller, since)
    if since > page.revision or 0 < since < page.reset_below:
        # Ahead of us, or from before the store was put back to an older state of itself.
        foreign, page = True, await _read(service, caller, 0)
    elif not (page.documents or foreign) and asked.wait and not service.stopping.is_set():
        await _wait(service, caller, asked.wait, page.revision)
        page = await _read(service, caller, since)
    return policy_set_page(service, caller, page, reset=foreign)


async def _read(service: AppContext, caller: Caller, since: int) -> documents.ChangePage:
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        return await documents.since(
            connection,
            caller.tenant.tenant_id,
            since,
            limit=MOST_DOCUMENTS,
            most_bytes=MAX_PAGE_BYTES,
        )


async def _wait(service: AppContext, caller: Caller, seconds: float, revision: int) -> None:
    """Until the tenant's set moves beyond `revision`. What was published between the read and this
    line has moved it already."""
    if service.waiters.locked():
        raise Unavailable(f"{MAX_WAITERS} sidecars wait for news already: come again")
    async with service.waiters:
        with service.instruments.waiting.track_inprogress():
            if caller.tenant.policy_set.revision <= revision:
                await caller.tenant.wait(seconds)
    # What woke us may have been the revocation of this very key.
    if not await caller.live(service.clock.now()):
        raise Forbidden("the API key is not valid any more, or its tenant is deactivated")
