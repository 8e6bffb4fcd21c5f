"""Where the service's own verification of a log stands (`log.scheduled`), read from its stored
state: any process can tell, and a restart loses nothing. Verifies nothing itself."""

import re
from dataclasses import replace
from typing import Literal

from control_api.app_context import AppContext
from control_api.domain.log_standing import verified_at
from control_api.log.scheduled.rederivation import stopped
from control_api.responses.checkpoints import Verification
from control_api.responses.times import time_or_none
from control_api.store.queries import count_checks, purges, redactions, self_checks
from control_api.store.queries.self_checks import ASKED_FOR, MOST_LEASED, SelfCheck
from policies.trail.findings import Finding

_SEQ = re.compile(r"[a-z_]+: seq ([0-9]{1,16}):")


async def read_verification(app: AppContext, tenant_id: str) -> Verification:
    """Where the verification of the tenant's log stands. A log that contradicts its checkpoints is
    damaged, whatever its entries say."""
    async with app.store.reading(tenant_id) as connection:
        state = await self_checks.state(connection, tenant_id)
        total = await redactions.log_size(connection, tenant_id)
        first = await purges.purged_size(connection, tenant_id)
        counts = await count_checks.state(connection, tenant_id)
    diverged = app.checkpoints.diverged.get(tenant_id)
    shown = _shown(state, first, total, app.clock.now(), diverged)
    # What an entry shows comes first: it says where the log was changed.
    if shown.reason is None and counts.reason is not None:
        shown = replace(shown, state="damaged", reason=counts.reason)
    running = shown.running or counts.is_running(app.clock.now())
    return replace(shown, running=running, verified_at=time_or_none(verified_at(state, counts)))


def is_running(state: SelfCheck, total: int, now: int) -> bool:
    """Whether a round over the log is under way, or due at once. A walk that stays before what it
    found is due if somebody asked for it."""
    until = state.leased_until
    leased = until is not None and (now < until <= now + MOST_LEASED or until == ASKED_FOR)
    behind = state.size != state.finished_size and state.size < total
    return leased or (not stopped(state) and (behind or not state.started_at))


def _shown(
    state: SelfCheck | None, first: int, total: int, now: int, diverged: Finding | None
) -> Verification:
    # A log that was never verified is due.
    state = state or SelfCheck(first, b"", b"", 0)
    broken_at, reason = state.broken_at, state.reason
    if reason is None and diverged is not None:
        broken_at, reason = diverged.place, diverged.text()
    seq = None if reason is None else _SEQ.match(reason)
    sound: Literal["pending", "valid"] = "pending" if state.finished_at is None else "valid"
    return Verification(
        sound if reason is None else "damaged",
        is_running(state, total, now),
        first,
        # A round that is due begins where the log does.
        max(first, state.size if state.started_at else first),
        max(first, total),
        time_or_none(state.started_at or None),
        time_or_none(state.finished_at),
        state.finished_size,
        broken_at,
        None if seq is None else int(seq[1]),
        reason,
        None,
    )
