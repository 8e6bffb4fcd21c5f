"""Starts an impact run: recorded decisions are made again by other policies, in the background
(`control_api.workers.impact`)."""

from typing import Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.impact_retention import forget_ended
from control_api.domain.log_bounds import Place, bound
from control_api.log.export.place import LogPart, find_part
from control_api.requests.base import RequestModel
from control_api.requests.policy import PolicyAsked, PolicySet
from control_api.responses.impact import ImpactStarted
from control_api.store.queries import impact_runs
from control_api.store.queries.impact_runs import RunState, StoredRun
from control_api.store.transaction import Transaction
from policies.ground.canonical import encode
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed

MAX_RUNNING = 2
"""Runs of one tenant at a time: each reads a part of its log, at the cost of everyone's disk."""


class ImpactRequest(RequestModel):
    """All policies that would be in force, and the part of the log to decide again."""

    example: ClassVar[dict[str, Any]] = {
        "policies": [PolicyAsked.example],
        "from": "2026-01-24T12:00:00Z",
    }

    policies: PolicySet
    first: Place | None = Field(
        None,
        alias="from",
        description="The first entry: its `seq`, or a time (RFC 3339), which means the first entry "
        "that the control API recorded at or after it. The oldest entry by default.",
    )
    until: Place | None = Field(
        None,
        alias="to",
        description="Where to stop: the `seq` or time of the first entry that is left out. The end "
        "of the log by default.",
    )


async def start_impact(app: AppContext, caller: Caller, request: ImpactRequest) -> ImpactStarted:
    """Decide recorded traffic again by other policies, in the background.

    The policies are all that would be in force: what they leave out is denied. The run changes
    nothing, and reads the log as of now. `show_impact` tells how far it has come. At most two runs
    of a tenant go on at a time.
    """
    impact_id = prefixed("imp_", app.entropy(16))
    policies = encode([{**each.body(), "policy_id": "", "version": 0} for each in request.policies])
    async with app.store.reading(caller.tenant_id) as connection:
        part = await find_part(
            connection, caller.tenant_id, bound(request.first), bound(request.until)
        )

    async def work(tx: Transaction) -> None:
        # Under the tenant's lock: two requests at once can't both take the last place.
        await tx.lock()
        if await impact_runs.count_running(tx.connection, tx.tenant_id) >= MAX_RUNNING:
            raise Conflict(
                f"{MAX_RUNNING} impact runs go on already, the most at a time: wait, or cancel one"
            )
        run = _waiting(impact_id, caller.by, tx.now, part)
        await impact_runs.add(tx.connection, tx.tenant_id, run, policies)
        await forget_ended(tx)

    await app.store.write(caller.tenant_id, work)
    # Stored. If we die here, any process takes the run up.
    app.impact_asked.set()
    return ImpactStarted(impact_id)


def _waiting(impact_id: str, by: str, now: int, part: LogPart) -> StoredRun:
    return StoredRun(
        impact_id, RunState.running, None, by, now, None, part.first, part.until, part.first,
        b"", None, b"", None, 0, None, now,
    )  # fmt: skip
