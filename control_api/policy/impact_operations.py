"""Starts, shows and cancels impact runs, which decide recorded requests again by other policies, in
the background."""

from typing import Annotated

import orjson
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.audit.export_operations import bound
from control_api.auth import Caller
from control_api.edge.answers import Empty, time_or_none
from control_api.edge.requests import Identifier, RequestModel, UndecodedRequest
from control_api.log.export.place import LogPart, find_part
from control_api.policy import impact_queries
from control_api.policy.analyses.process import Job
from control_api.policy.bundle import Policies
from control_api.policy.impact_counts import (
    ImpactCounts,
    ImpactRequest,
    ImpactResponse,
    ImpactStarted,
    PreparedRun,
    Renamed,
    Unreplayable,
    forget_ended,
    prepare,
    read_prepared,
)
from control_api.policy.impact_queries import RunState, StoredRun
from control_api.store.queries import documents
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, NotFound
from policies.ground.ids import prefixed
from policies.sets.policy_set import ROLE


class RunRequest(RequestModel):
    """A request about one impact run, which the path names by its id."""

    impact_id: Identifier


async def show_impact(policies: Policies, caller: Caller, request: RunRequest) -> ImpactResponse:
    """Show what other policies would have decided, as far as the run has come.

    A run that is `done` was proven: its last entry is in the signed checkpoint of
    `checkpoint_size`, and each entry before it is cited by the next. One that `failed` has the
    `reason`, and what it counted before it. Ended runs are kept for a week, the last 50 of a
    tenant.
    """
    async with policies.store.reading(caller.tenant_id) as connection:
        return _shown(await _existing(connection, caller.tenant_id, request.impact_id))


async def cancel_impact(policies: Policies, caller: Caller, request: RunRequest) -> Empty:
    """Cancel an impact run; what it has counted stays. One that has ended stays as it is."""

    async def work(tx: Transaction) -> None:
        run = await _existing(tx.connection, tx.tenant_id, request.impact_id)
        ended = {"state": RunState.cancelled, "ended_at": tx.now}
        await impact_queries.end(tx.connection, tx.tenant_id, run.impact_id, None, ended)

    await policies.store.write(caller.tenant_id, work)
    return Empty()


async def _existing(connection: AsyncConnection, tenant_id: str, impact_id: str) -> StoredRun:
    if (run := await impact_queries.find(connection, tenant_id, impact_id)) is None:
        raise NotFound(f"no such impact run: `{impact_id}`")
    return run


_OF_RUN = ("impact_id", "state", "reason", "first_seq", "until_seq", "checkpoint_size")
_COUNTED = ("entries", "read", "unchanged", "newly_denied", "newly_allowed")


def _shown(run: StoredRun) -> ImpactResponse:
    counts = ImpactCounts.from_wire(orjson.loads(run.counts)) if run.counts else ImpactCounts()
    whole = run.until_seq - run.first_seq
    others, left_out = counts.renamed.shown(), sum(counts.renamed.left_out.values())
    return ImpactResponse(
        **{name: getattr(run, name) for name in _OF_RUN},
        **{name: getattr(counts, name) for name in _COUNTED},
        progress=round((run.next_seq - run.first_seq) / whole, 4) if whole else 1.0,
        groups=counts.groups.shown(),
        left_out=sum(counts.groups.left_out.values()),
        renamed=Renamed(counts.unchanged_by_another, others, left_out),
        unreplayable=[Unreplayable(why.value, n) for why, n in sorted(counts.unreplayable.items())],
        created_at=rfc3339(run.created_at),
        ended_at=time_or_none(run.ended_at),
    )


MAX_HERE = 64 * 1024
"""The most bytes, in a body and the documents in force together, that are decoded in this process:
that takes a millisecond or two."""
MAX_RUNNING = 2
"""The most unfinished runs of one tenant: each reads a part of its log, which takes disk bandwidth
from everyone."""


async def start_impact(
    policies: Policies, caller: Caller, request: Annotated[UndecodedRequest, ImpactRequest]
) -> ImpactStarted:
    """Decide recorded traffic again by other policies, in the background.

    The policies are all that would be in force, unless `keep_others` is set: what they leave out is
    denied. The run changes nothing, and reads the log as of now. `show_impact` tells how far it has
    come. At most two runs of a tenant go on at a time.
    """
    impact_id = prefixed("imp_", policies.entropy(16))
    prepared = await _prepared(policies, caller, request.body)
    async with policies.store.reading(caller.tenant_id) as connection:
        bounds = bound(prepared.first), bound(prepared.until)
        part = await find_part(connection, caller.tenant_id, *bounds)

    async def work(tx: Transaction) -> None:
        # Under the tenant's lock: two requests at once can't both take the last place.
        await tx.lock()
        if await impact_queries.count_running(tx.connection, tx.tenant_id) >= MAX_RUNNING:
            raise Conflict(
                f"{MAX_RUNNING} impact runs go on already, the most at a time: wait, or cancel one"
            )
        run = _waiting(impact_id, caller.by, tx.now, part)
        await impact_queries.add(tx.connection, tx.tenant_id, run, prepared.policies)
        await forget_ended(tx)

    await policies.store.write(caller.tenant_id, work)
    # Stored. If we die here, any process takes the run up.
    policies.impact.start()
    return ImpactStarted(impact_id)


async def _prepared(policies: Policies, caller: Caller, body: bytes) -> PreparedRun:
    """Return the decoded and validated request. A large one is decoded in another process, so that
    it does not hold up the event loop."""
    async with policies.store.snapshot(caller.tenant_id) as connection:
        in_force = await documents.array_of(connection, caller.tenant_id, ROLE)
    if len(body) + len(in_force) <= MAX_HERE:
        return read_prepared(prepare(body, in_force))
    job = Job("impact", {}, (body, in_force))
    return read_prepared(await policies.analyses.answer(caller.tenant_id, job))


def _waiting(impact_id: str, by: str, now: int, part: LogPart) -> StoredRun:
    return StoredRun(
        impact_id, RunState.running, None, by, now, None, part.first, part.until, part.first,
        b"", None, b"", None, 0, None, now,
    )  # fmt: skip
