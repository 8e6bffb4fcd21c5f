"""Takes in a batch of a sidecar's records, exactly once, and signs a receipt for it."""

import logging
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from control_api.app_context import MAX_BATCHES, AppContext
from control_api.auth.principal import Caller
from control_api.isolation.spool_starts import Spool
from control_api.log.ingest import IngestReceipt, ingest
from control_api.log.judging.agent_roles import former_roles
from control_api.log.judging.judge import Event, Judge, Lookup, Refusal, Roles
from control_api.log.read import known_events
from control_api.metrics.labels import Foreign, Ingest
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.sidecars import Receipt, Rejected
from policies.ground.canonical import b64
from policies.ground.errors import Conflict, Forbidden, Invalid, TooMany, Unavailable
from policies.ground.signing import receipt_message
from policies.sets.policy_set import agent_name
from policies.trail.record_fast_path import match_batch

_SECOND = 1_000_000
_OPERATION = "ingest_events"
_log = logging.getLogger("sluice.ingest")
_FOREIGN: Mapping[str, Foreign] = {
    Refusal.foreign_spool: Foreign.sidecar,
    Refusal.foreign_agent: Foreign.agent,
    Refusal.foreign_role: Foreign.agent,
    Refusal.foreign_event: Foreign.agent,
    Refusal.unknown_event: Foreign.event,
    # Two records can't both be true: who learned the id first may have taken it.
    Refusal.duplicate_id: Foreign.event,
}
"""Refusals of what somebody else may have made, which alert rules read."""


class NewRecords(RequestModel):
    """A batch from a sidecar's spool: its records in order and without gaps."""

    # Ingestion hashes the records' bytes again, so a record with a duplicate key fails there.
    unique_keys: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {
        "source": "sidecar-1",
        "instance": "6f1d2a9c",
        "records": [],
    }

    source: Identifier
    instance: Identifier
    records: list[Any]

    @classmethod
    def from_known_bytes(cls, body: bytes) -> "NewRecords | None":
        batch = match_batch(body)
        return None if batch is None else cls.model_construct(**batch._asdict())


async def ingest_events(app: AppContext, caller: Caller, request: NewRecords) -> Receipt:
    """Deliver a batch of a sidecar's records; records delivered before are skipped."""
    tenant_id = caller.tenant_id
    count = app.instruments.decisions.ingested.labels
    # Refused, not queued: the batch can wait on the sidecar's disk instead of in this memory.
    if app.ingesting.locked():
        raise Unavailable(
            f"already ingesting {MAX_BATCHES} batches, the most at a time: try again later"
        )
    # INVARIANT: before anything of the spool is told: a receipt for it would let an attacker
    # between its sidecar and this service make the sidecar forget records.
    if caller.scope == "sidecar":
        try:
            await app.isolation.require_sidecar(caller, request.source, _OPERATION)
        except Forbidden:
            count(Ingest.foreign).inc(len(request.records))
            raise
    judge = _judge(app, caller, request)
    spool = Spool(tenant_id, caller.by, request.source, request.instance)
    try:
        begins = await app.spool_starts.begins(spool, request.records)
        async with app.ingesting:
            # Through `app.reading`, batches are decoded one at a time: evaluations don't wait for
            # several.
            held = await ingest(
                app.store,
                tenant_id,
                request.source,
                request.instance,
                request.records,
                turn=app.reading,
                heads=app.log.heads,
                judge=judge,
            )
    except (Conflict, Invalid, TooMany):
        count(Ingest.refused).inc(len(request.records))
        raise
    # Committed. If we die here, the sidecar sends the batch again, which adds nothing, and gets its
    # receipt then. The receipt must not leave before the commit: the sidecar deletes the records
    # that it covers.
    if begins:
        app.spool_starts.begun(spool)
    await _tell(app, caller, request, held)
    if judge.doubtful:
        count(Ingest.doubtful).inc(judge.doubtful)
    message = receipt_message(tenant_id, request.source, request.instance, held.n, held.hash)
    signature = app.signer.sign(message)
    rejected = [Rejected(n, reason) for n, reason in held.rejected]
    hash_, signed = b64(held.hash), b64(signature)
    return Receipt(request.source, request.instance, held.n, hash_, signed, rejected)


async def _tell(app: AppContext, caller: Caller, request: NewRecords, held: IngestReceipt) -> None:
    """Count the records, and tell of those that were refused."""
    count = app.instruments.decisions.ingested.labels
    count(Ingest.held).inc(len(request.records) - len(held.rejected))
    if held.rejected:
        count(Ingest.rejected).inc(len(held.rejected))
        n, reason = held.rejected[0]
        _log.warning(
            "refused %d of %d records of sidecar `%s`, delivered by key `%s`; the first is "
            "record %d: %s",
            len(held.rejected),
            len(request.records),
            request.source,
            caller.by,
            n,
            reason,
            extra={"tenant_id": caller.tenant_id},
        )
    # Once for a batch: alert rules need no more, and each record has its own entry.
    named = [(n, reason) for n, reason in held.rejected if reason in _FOREIGN]
    if named:
        n, reason = named[0]
        what = _FOREIGN[reason]
        record = f"record {n} of {request.source} {request.instance}: {reason}"
        await app.isolation.record(caller, what, record, _OPERATION)


def _judge(app: AppContext, caller: Caller, request: NewRecords) -> Judge:
    tenant = caller.tenant

    async def roles(acted: Mapping[str, Collection[str]], since: int) -> Roles:
        await tenant.need(map(agent_name, acted))
        agents = {agent_id: tenant.policy_set.agent(agent_id) for agent_id in acted}
        now = {name: set(each.permitted_roles) if each else set() for name, each in agents.items()}
        changed = [agent_id for agent_id in acted if not now[agent_id].issuperset(acted[agent_id])]
        if changed:
            former = await former_roles(app.store, tenant.tenant_id, changed, since)
            now |= {agent_id: now[agent_id] | former[agent_id] for agent_id in changed}
        return now

    async def events(ids: Collection[str]) -> Mapping[str, Event]:
        return await known_events(app.store, tenant.tenant_id, ids)

    return Judge(
        caller.key,
        request.source,
        request.instance,
        app.clock.now(),
        app.settings.ingest_max_age * _SECOND,
        app.new_id,
        Lookup(roles, events),
    )
