"""Takes in batches of sidecars' records, each exactly once, and signs a receipt. Also claims
sessions for agents behind a sidecar: the role and agent of the first claim own the session,
whichever sidecar makes it."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from control_api.audit.change_operations import RefusalWord, SpoolNumber
from control_api.auth import Caller
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, RequestModel
from control_api.fleet.bundle import MAX_BATCHES, Fleet
from control_api.fleet.isolation import Spool
from control_api.log.ingest import IngestReceipt, ingest
from control_api.log.judging import Event, Judge, Lookup, RecordRefusal, Roles, former_roles
from control_api.log.read import known_events
from control_api.metrics.labels import Foreign, Ingest
from control_api.sessions.models import ClaimedSession
from control_api.sessions.operations import claim
from policies.ground.canonical import b64, rfc3339
from policies.ground.errors import Conflict, Forbidden, Invalid, TooMany, Unavailable
from policies.ground.signing import receipt_message
from policies.sets.policy_set import TENANT, agent_name, role_name
from policies.trail.record_fast_path import match_batch


class NewSession(RequestModel):
    """The session and its would-be owner. The sidecar has already run checks 1 to 4."""

    example: ClassVar[dict[str, Any]] = {
        "session_id": "s-77",
        "agent_role": "loan_underwriter",
        "agent_id": "agt_loans",
        "user_id": "u-1001",
    }

    session_id: Identifier
    agent_role: Identifier
    agent_id: Identifier | None = None
    user_id: Identifier


async def claim_session(fleet: Fleet, caller: Caller, request: NewSession) -> ClaimedSession:
    """Claim a session, or learn who owns it and whether it is active."""
    tenant = caller.tenant
    await fleet.isolation.require_agent(caller, request.agent_id, "claim_session")
    # These documents give the session's lifetime, and say whether to mask its user.
    await tenant.need((TENANT, role_name(request.agent_role)))
    row = await claim(
        fleet.sessions,
        tenant,
        request.session_id,
        request.agent_role,
        request.agent_id,
        request.user_id,
    )
    # Committed. If we die here, Redis lacks the claim: the next sidecar asks the API for it and
    # gets this row.
    if fleet.sessions.publishing is not None:
        fleet.sessions.publishing.session(tenant.tenant_id, row)
    return ClaimedSession(
        session_id=row.session_id,
        state=row.state(fleet.clock.now()),
        agent_role=row.agent_role,
        agent_id=row.agent_id,
        expires_at=rfc3339(row.expires_at),
    )


@dataclass(frozen=True, slots=True)
class Rejected:
    """A refused record: its number in the spool, and why it was refused. The log holds it as an
    entry of kind `rejected_record`."""

    n: SpoolNumber
    reason: RefusalWord

    example: ClassVar[dict[str, Any]] = {"n": 126, "reason": "foreign_agent"}


@dataclass(frozen=True, slots=True)
class Receipt:
    """The part of a sidecar's spool that is in the log, signed with the log's key. `rejected` are
    records of this batch that the sidecar's key may not deliver."""

    source: str
    instance: str
    n: Annotated[int, says("The number of the last record from this spool that is in the log.")]
    hash: str
    signature: Annotated[str, says("The log key's signature on the receipt (Ed25519, base64).")]
    rejected: Annotated[
        list[Rejected],
        says(
            "The records of this batch that the sidecar's key may not deliver. Each is in the log "
            "as an entry of kind `rejected_record`; none is to be sent again."
        ),
    ]

    example: ClassVar[dict[str, Any]] = {
        "source": "sidecar-1",
        "instance": "6f1d2a9c",
        "n": 127,
        "hash": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
        "signature": "A" * 86 + "==",
        "rejected": [],
    }


_SECOND = 1_000_000
_OPERATION = "ingest_events"
_log = logging.getLogger("sluice.ingest")
_FOREIGN: Mapping[str, Foreign] = {
    RecordRefusal.foreign_spool: Foreign.sidecar,
    RecordRefusal.foreign_agent: Foreign.agent,
    RecordRefusal.foreign_role: Foreign.agent,
    RecordRefusal.foreign_event: Foreign.agent,
    RecordRefusal.unknown_event: Foreign.event,
    # Two records can't both be true: who learned the id first may have taken it.
    RecordRefusal.duplicate_id: Foreign.event,
}
"""The refusals of records that another party may have made with a stolen key. Alert rules read
them."""


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
    records: Annotated[list[Any], says("The records as in the spool, in order and without gaps.")]

    @classmethod
    def from_known_bytes(cls, body: bytes) -> "NewRecords | None":
        batch = match_batch(body)
        return None if batch is None else cls.model_construct(**batch._asdict())


async def ingest_events(fleet: Fleet, caller: Caller, request: NewRecords) -> Receipt:
    """Deliver a batch of a sidecar's records; records delivered before are skipped."""
    tenant_id = caller.tenant_id
    count = fleet.ingested.labels
    # Refused, not queued: the batch can wait on the sidecar's disk instead of in this memory.
    if fleet.ingesting.locked():
        raise Unavailable(
            f"already ingesting {MAX_BATCHES} batches, the most at a time: try again later"
        )
    # INVARIANT: before anything of the spool is told: a receipt for it would let an attacker
    # between its sidecar and this service make the sidecar forget records.
    if caller.scope == "sidecar":
        try:
            await fleet.isolation.require_sidecar(caller, request.source, _OPERATION)
        except Forbidden:
            count(Ingest.foreign).inc(len(request.records))
            raise
    judge = _judge(fleet, caller, request)
    spool = Spool(tenant_id, caller.by, request.source, request.instance)
    try:
        begins = await fleet.spool_starts.begins(spool, request.records)
        async with fleet.ingesting:
            # Through `app.reading`, batches are decoded one at a time: evaluations don't wait for
            # several.
            held = await ingest(
                fleet.store,
                tenant_id,
                request.source,
                request.instance,
                request.records,
                turn=fleet.reading,
                heads=fleet.heads,
                judge=judge,
            )
    except (Conflict, Invalid, TooMany):
        count(Ingest.refused).inc(len(request.records))
        raise
    # Committed. If we die here, the sidecar sends the batch again, which adds nothing, and gets its
    # receipt then. The receipt must not leave before the commit: the sidecar deletes the records
    # that it covers.
    if begins:
        fleet.spool_starts.begun(spool)
    await _tell(fleet, caller, request, held)
    if judge.doubtful:
        count(Ingest.doubtful).inc(judge.doubtful)
    message = receipt_message(tenant_id, request.source, request.instance, held.n, held.hash)
    signature = fleet.ring.signer.sign(message)
    rejected = [Rejected(n, reason) for n, reason in held.rejected]
    hash_, signed = b64(held.hash), b64(signature)
    return Receipt(request.source, request.instance, held.n, hash_, signed, rejected)


async def _tell(fleet: Fleet, caller: Caller, request: NewRecords, held: IngestReceipt) -> None:
    """Count the records in the metrics, and log those that were refused."""
    count = fleet.ingested.labels
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
        await fleet.isolation.record(caller, what, record, _OPERATION)


def _judge(fleet: Fleet, caller: Caller, request: NewRecords) -> Judge:
    tenant = caller.tenant

    async def roles(acted: Mapping[str, Collection[str]], since: int) -> Roles:
        await tenant.need(map(agent_name, acted))
        agents = {agent_id: tenant.policy_set.agent(agent_id) for agent_id in acted}
        now = {name: set(each.permitted_roles) if each else set() for name, each in agents.items()}
        changed = [agent_id for agent_id in acted if not now[agent_id].issuperset(acted[agent_id])]
        if changed:
            former = await former_roles(fleet.store, tenant.tenant_id, changed, since)
            now |= {agent_id: now[agent_id] | former[agent_id] for agent_id in changed}
        return now

    async def events(ids: Collection[str]) -> Mapping[str, Event]:
        return await known_events(fleet.store, tenant.tenant_id, ids)

    return Judge(
        caller.key,
        request.source,
        request.instance,
        fleet.clock.now(),
        fleet.ingest_max_age * _SECOND,
        fleet.changes.new_id,
        Lookup(roles, events),
    )
