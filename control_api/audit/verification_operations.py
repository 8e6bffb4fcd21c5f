"""Verifies a tenant's log on request, and shows how far the service's own verification has come.

`verify_log` verifies within the request, which takes minutes for millions of entries, and answers
200 whether the log is valid or not. `start_verification` answers at once, and the verification goes
on in the background. `standing_headers` makes the headers that say, in each response that depends
on the log, when the log was last verified.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from control_api.audit.bundle import Audit
from control_api.audit.event_models import PurgeAnchor, SignedCheckpoint, Verified
from control_api.audit.proof_models import Verification
from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import time_or_none
from control_api.edge.requests import EmptyRequest
from control_api.log.checkpoints.agreement import level_of
from control_api.log.scheduled.rederivation import stopped
from control_api.log.verify import verify
from control_api.store.queries import log_keys, purges, redactions
from control_api.store.queries.checkpoints import readable_latest
from control_api.store.queries.leases import (
    ASKED_FOR,
    CountCheck,
    SelfCheck,
    begin_round,
    count_checks,
    self_checks,
)
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.trail.findings import Finding


@ends_with_client
async def verify_log(audit: Audit, caller: Caller, _: EmptyRequest) -> Verified:
    """Verify the tenant's audit trail; the response names the first entry that fails, if any."""
    tenant_id = caller.tenant_id
    # All keys of the chain: a former key's signatures stay valid after a rotation.
    publics = await log_keys.trusted(audit.store, audit.ring)
    # Before the log is read: what is signed meanwhile may be of more entries than were read.
    signed = await audit.checkpoints.signed(tenant_id)
    report = await verify(audit.store, tenant_id, publics, signed)
    async with audit.store.reading(tenant_id) as connection:
        latest = await readable_latest(connection, tenant_id)
    note = None if latest is None else latest.note
    keys = [each.key for each in audit.witnesses]
    origin = "" if latest is None else latest.origin
    level, count = level_of(note, origin, publics, keys, audit.witness_quorum)
    anchor, checkpoint = report["anchor"], report["checkpoint"]
    return Verified(
        **{
            **report,
            "level": level,
            "witnesses": count,
            "anchor": None if anchor is None else PurgeAnchor(**anchor),
            "checkpoint": None if checkpoint is None else SignedCheckpoint(**checkpoint),
        }
    )


VERIFICATION, VERIFIED_AT = "X-Sluice-Verification", "X-Sluice-Verified-At"


class LogStanding(NamedTuple):
    """The last known result of verifying a log. `verification` is the code of the finding, `ok`, or
    `never`. `verified_at` is when all of the log was last verified (microseconds), or None if it
    never was."""

    verification: str
    verified_at: int | None

    def headers(self) -> dict[str, str]:
        shown = {VERIFICATION: self.verification}
        if self.verified_at is not None:
            shown[VERIFIED_AT] = rfc3339(self.verified_at)
        return shown


async def standing_headers(audit: Audit, caller: object) -> Mapping[str, str]:
    """Return the headers for a response to this caller that say when its log was last verified. The
    superadmin gets none, since it has no log."""
    if not isinstance(caller, Caller):
        return {}
    return (await read_standing(audit, caller.tenant_id)).headers()


async def read_standing(audit: Audit, tenant_id: str) -> LogStanding:
    """Read the last known result of verifying the tenant's log."""
    async with audit.store.reading(tenant_id) as connection:
        state = await self_checks.state(connection, tenant_id)
        counts = await count_checks.state(connection, tenant_id)
    diverged = audit.checkpoints.diverged.get(tenant_id)
    # None of the three is ever an empty text.
    reason = (state and state.reason) or (diverged and diverged.text()) or counts.reason
    at = verified_at(state, counts)
    if reason is not None:
        return LogStanding(reason.partition(":")[0], at)
    return LogStanding("never" if at is None else "ok", at)


def verified_at(state: SelfCheck | None, counts: CountCheck) -> int | None:
    """Return the time at which all entries and all counts were last verified, or None if one of the
    two never was."""
    if state is None or state.verified_at is None or counts.checked_at is None:
        return None
    return min(state.verified_at, counts.checked_at)


_SEQ = re.compile(r"[a-z_]+: seq ([0-9]{1,16}):")


async def read_verification(audit: Audit, tenant_id: str) -> Verification:
    """Read the state of the verification of the tenant's log. A log that contradicts its
    checkpoints is reported as damaged, whatever its entries say."""
    async with audit.store.reading(tenant_id) as connection:
        state = await self_checks.state(connection, tenant_id)
        total = await redactions.log_size(connection, tenant_id)
        first = await purges.purged_size(connection, tenant_id)
        counts = await count_checks.state(connection, tenant_id)
    diverged = audit.checkpoints.diverged.get(tenant_id)
    shown = _shown(state, first, total, audit.clock.now(), diverged)
    # What an entry shows comes first: it says where the log was changed.
    if shown.reason is None and counts.reason is not None:
        shown = replace(shown, state="damaged", reason=counts.reason)
    now = audit.clock.now()
    running = shown.running or counts.is_running(now)
    begun = (state is not None and state.is_leased(now)) or counts.is_leased(now)
    at = time_or_none(verified_at(state, counts))
    return replace(shown, running=running, queued=running and not begun, verified_at=at)


def is_running(state: SelfCheck, total: int, now: int) -> bool:
    """Return whether a verification of the log is under way, or due at once. After a verification
    that stopped at a finding, the next one is due only if a request asked for it."""
    leased = state.is_leased(now) or state.leased_until == ASKED_FOR
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
        False,
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


async def show_verification(audit: Audit, caller: Caller, _: EmptyRequest) -> Verification:
    """Show how far the service has verified the audit trail by itself, and what it found last."""
    return await read_verification(audit, caller.tenant_id)


async def start_verification(audit: Audit, caller: Caller, _: EmptyRequest) -> Verification:
    """Verify the audit trail from its oldest entry on, in the background.

    One verification of a log runs at a time: while one does, this shows it. A log with a finding is
    verified from before the finding on. The counts are compared with the entries too. Ask `GET`
    until `running` is false.
    """
    tenant_id = caller.tenant_id

    async def work(tx: Transaction) -> None:
        state = await self_checks.state(tx.connection, tenant_id)
        total = await redactions.log_size(tx.connection, tenant_id)
        if state is not None and not is_running(state, total, tx.now):
            await begin_round(tx.connection, tenant_id, stopped=stopped(state))
        compared = await count_checks.state(tx.connection, tenant_id)
        if not compared.is_running(tx.now):
            await count_checks.ask(tx.connection, tenant_id)

    await audit.store.write(tenant_id, work)
    # If we die here, the scheduled verification does it within a minute.
    audit.asked_logs.add(tenant_id)
    return await read_verification(audit, tenant_id)
