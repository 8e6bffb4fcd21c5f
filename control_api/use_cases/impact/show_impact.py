"""Shows what an impact run has counted so far, and cancels one."""

import orjson

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.impact_counts import ImpactCounts
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.audit import Empty
from control_api.responses.impact import ImpactShown, Renamed, Unreplayable
from control_api.responses.times import time_or_none
from control_api.store.queries import impact_runs
from control_api.store.queries.impact_runs import RunState, StoredRun
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound


class RunRequest(RequestModel):
    """Names one impact run."""

    impact_id: Identifier


async def show_impact(app: AppContext, caller: Caller, request: RunRequest) -> ImpactShown:
    """Show what other policies would have decided, as far as the run has come.

    A run that is `done` was proven: its last entry is in the signed checkpoint of
    `checkpoint_size`, and each entry before it is cited by the next. One that `failed` has the
    `reason`, and what it counted before it. Ended runs are kept for a week, the last 50 of a
    tenant.
    """
    async with app.store.reading(caller.tenant_id) as connection:
        run = await impact_runs.find(connection, caller.tenant_id, request.impact_id)
    if run is None:
        raise _unknown(request.impact_id)
    return _shown(run)


async def cancel_impact(app: AppContext, caller: Caller, request: RunRequest) -> Empty:
    """Cancel an impact run; what it has counted stays. One that has ended stays as it is."""

    async def work(tx: Transaction) -> None:
        run = await impact_runs.find(tx.connection, tx.tenant_id, request.impact_id)
        if run is None:
            raise _unknown(request.impact_id)
        ended = {"state": RunState.cancelled, "ended_at": tx.now}
        await impact_runs.end(tx.connection, tx.tenant_id, run.impact_id, None, ended)

    await app.store.write(caller.tenant_id, work)
    return Empty()


def _unknown(impact_id: str) -> NotFound:
    return NotFound(f"no such impact run: `{impact_id}`")


def _shown(run: StoredRun) -> ImpactShown:
    counts = ImpactCounts.from_wire(orjson.loads(run.counts)) if run.counts else ImpactCounts()
    whole = run.until_seq - run.first_seq
    return ImpactShown(
        run.impact_id,
        run.state,  # type: ignore[arg-type]  # only these states are stored
        run.reason,
        round((run.next_seq - run.first_seq) / whole, 4) if whole else 1.0,
        run.first_seq,
        run.until_seq,
        counts.entries,
        counts.read,
        counts.unchanged,
        counts.newly_denied,
        counts.newly_allowed,
        counts.groups.shown(),
        sum(counts.groups.left_out.values()),
        Renamed(
            counts.unchanged_by_another,
            counts.renamed.shown(),
            sum(counts.renamed.left_out.values()),
        ),
        [Unreplayable(why.value, count) for why, count in sorted(counts.unreplayable.items())],
        run.checkpoint_size,
        rfc3339(run.created_at),
        time_or_none(run.ended_at),
    )
