"""Shows which sidecars have applied a revision, by their own hash-chained records."""

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import ListRequest, QueryInt
from control_api.responses.changes import Acknowledgements, Applied, NotApplied
from control_api.responses.paging import PagedPart
from control_api.store.queries import acknowledgements
from policies.ground.canonical import rfc3339


class AcknowledgementsRequest(ListRequest):
    """`revision` is the one to look for, for example from `X-Sluice-Revision`."""

    revision: QueryInt | None = Field(
        None, ge=0, lt=1 << 53, description="The revision to look for; the tenant's by default."
    )


async def show_acknowledgements(
    app: AppContext, caller: Caller, request: AcknowledgementsRequest
) -> PagedPart[Acknowledgements]:
    """Show which sidecars have applied a revision, and when, by their own hash-chained records.

    Lists the sidecars that reported within the last 15 seconds, by id. Each is in one of the two
    lists; a page holds `limit` of both together.
    """
    after, revision = request.after(str), request.revision
    if revision is None:
        revision = caller.tenant.policy_set.revision
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await acknowledgements.of_live(
            connection,
            caller.tenant_id,
            revision,
            app.clock.now(),
            "" if after is None else str(after[0]),
            request.limit + 1,
        )
    page, applied, missing = rows[: request.limit], [], []
    for row in page:
        if row.seq is None or row.at is None:
            missing.append(NotApplied(row.sidecar_id, row.newest, rfc3339(row.last_seen)))
        else:
            leaf = None if row.hash is None else row.hash.hex()
            applied.append(Applied(row.sidecar_id, row.seq, leaf, rfc3339(row.at)))
    more = (page[-1].sidecar_id,) if len(rows) > request.limit else None
    return PagedPart(Acknowledgements(revision, applied, missing), more)
