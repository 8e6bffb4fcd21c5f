"""Starts an impact run: recorded decisions are made again by other policies, in the background
(`control_api.workers.impact`)."""

from typing import Annotated

from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.impact_retention import forget_ended
from control_api.domain.log_bounds import bound
from control_api.log.export.place import LogPart, find_part
from control_api.requests.base import UndecodedRequest
from control_api.requests.impact import ImpactRequest, Prepared, prepare, read_prepared
from control_api.responses.impact import ImpactStarted
from control_api.store.queries import documents, impact_runs
from control_api.store.queries.impact_runs import RunState, StoredRun
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed
from policies.sets.policy_set import ROLE

MAX_HERE = 64 * 1024
"""Bytes of a body, and of what is in force, that take a millisecond or two to decode."""
MAX_RUNNING = 2
"""Runs of one tenant at a time: each reads a part of its log, at the cost of everyone's disk."""


async def start_impact(
    app: AppContext, caller: Caller, request: Annotated[UndecodedRequest, ImpactRequest]
) -> ImpactStarted:
    """Decide recorded traffic again by other policies, in the background.

    The policies are all that would be in force, unless `keep_others` is set: what they leave out is
    denied. The run changes nothing, and reads the log as of now. `show_impact` tells how far it has
    come. At most two runs of a tenant go on at a time.
    """
    impact_id = prefixed("imp_", app.entropy(16))
    asked = await _prepared(app, caller, request.body)
    async with app.store.reading(caller.tenant_id) as connection:
        bounds = bound(asked.first), bound(asked.until)
        part = await find_part(connection, caller.tenant_id, *bounds)

    async def work(tx: Transaction) -> None:
        # Under the tenant's lock: two requests at once can't both take the last place.
        await tx.lock()
        if await impact_runs.count_running(tx.connection, tx.tenant_id) >= MAX_RUNNING:
            raise Conflict(
                f"{MAX_RUNNING} impact runs go on already, the most at a time: wait, or cancel one"
            )
        run = _waiting(impact_id, caller.by, tx.now, part)
        await impact_runs.add(tx.connection, tx.tenant_id, run, asked.policies)
        await forget_ended(tx)

    await app.store.write(caller.tenant_id, work)
    # Stored. If we die here, any process takes the run up.
    app.impact_asked.set()
    return ImpactStarted(impact_id)


async def _prepared(app: AppContext, caller: Caller, body: bytes) -> Prepared:
    """The decoded request. A large one is decoded in another process: here, everything else would
    wait for it."""
    async with app.store.snapshot(caller.tenant_id) as connection:
        in_force = await documents.array_of(connection, caller.tenant_id, ROLE)
    if len(body) + len(in_force) <= MAX_HERE:
        return read_prepared(prepare(body, in_force))
    job = Job("impact", {}, (body, in_force))
    return read_prepared(await app.analyses.answer(caller.tenant_id, job))


def _waiting(impact_id: str, by: str, now: int, part: LogPart) -> StoredRun:
    return StoredRun(
        impact_id, RunState.running, None, by, now, None, part.first, part.until, part.first,
        b"", None, b"", None, 0, None, now,
    )  # fmt: skip
