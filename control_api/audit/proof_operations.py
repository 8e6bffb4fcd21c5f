"""Proves that an event is in the log and that the log only grew, and shows its checkpoints and
keys."""

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar

import orjson
from pydantic import Field

from control_api.audit.bundle import Audit
from control_api.audit.proof_models import (
    AcceptedIncarnation,
    ConsistencyProof,
    InclusionProof,
    KeptCheckpoint,
    LogKeys,
)
from control_api.auth import Caller
from control_api.edge.answers import Document, Page, page_of
from control_api.edge.field_descriptions import says
from control_api.edge.requests import EmptyRequest, Identifier, ListRequest, LogSize, RequestModel
from control_api.log.checkpoints.agreement import Level, cosigners
from control_api.log.proofs import prove_entry, prove_growth
from control_api.store.queries import checkpoints, log_keys
from control_api.store.queries.checkpoints import StoredCheckpoint, StoredIncarnation
from policies.ground.canonical import b64, rfc3339
from policies.ground.errors import NotFound, invalid
from policies.trail.proofs.signed_note import VerifierKey
from policies.trail.proofs.tree_proofs import TlogProof


class ConsistencyRequest(RequestModel):
    """A request for a proof that the log of `to` entries begins with the log of `from` entries.
    Without `to`, the latest checkpoint is taken."""

    old_size: LogSize = Field(
        alias="from", description="How many entries the checkpoint covers that you hold."
    )
    new_size: LogSize | None = Field(
        None, alias="to", description="The size of a later checkpoint. The latest if left out."
    )


async def prove_consistency(
    audit: Audit, caller: Caller, request: ConsistencyRequest
) -> ConsistencyProof:
    """Prove that the log of a checkpoint begins with the entries of an earlier one.

    404 means that no checkpoint of `to` entries is kept. 409 means that the log has no checkpoint
    yet, that the checkpoint is smaller than `from`, or that the entries needed were purged; the
    message says which.
    """
    if request.new_size is not None and request.old_size > request.new_size:
        raise invalid([f"from: is larger than `to`, which is {request.new_size}"], "query")
    publics = await log_keys.trusted(audit.store, audit.ring)
    proven = await prove_growth(
        audit.store, caller.tenant_id, request.old_size, request.new_size, publics
    )
    hashes = [b64(each) for each in proven.hashes]
    return ConsistencyProof(proven.old_size, proven.new_size, hashes, proven.note)


JSON = "application/json"


class ProofRequest(RequestModel):
    """A request for the proof that an audit event is in the log. `size` selects the checkpoint to
    which the proof leads; by default it is the latest."""

    in_header: ClassVar[Mapping[str, str]] = {"accept": "Accept"}

    event_id: Identifier
    size: Annotated[
        LogSize | None, says("The size of the checkpoint to prove it in. The latest if left out.")
    ] = None
    accept: str = ""

    def wants_json(self) -> bool:
        """Return whether the `Accept` header lists JSON. If not, the response is text."""
        listed = (each.partition(";") for each in self.accept.lower().split(","))
        return any(
            name.strip() == JSON and rest.replace(" ", "") not in ("q=0", "q=0.0")
            for name, _, rest in listed
        )


async def prove_event(
    audit: Audit, caller: Caller, request: ProofRequest
) -> Document | InclusionProof:
    """Prove that an event is in the log, as a C2SP `tlog-proof` that can be checked offline.

    The text's `extra` line holds the entry. With `Accept: application/json` the answer also has the
    openings. Takes the id of any entry. 409 with `Retry-After` means that no checkpoint covers the
    entry yet: try again a few seconds later.
    """
    publics = await log_keys.trusted(audit.store, audit.ring)
    proven = await prove_entry(
        audit.store, caller.tenant_id, request.event_id, request.size, publics
    )
    if request.wants_json():
        return InclusionProof(
            orjson.Fragment(proven.entry),
            proven.seq,
            orjson.Fragment(proven.openings or b"{}"),
            [b64(each) for each in proven.hashes],
            proven.note,
        )
    # The text carries the entry, so that it can be checked by itself. It never carries openings:
    # who passes a proof on passes on nothing that an erasure could not reach.
    text = TlogProof(proven.seq, tuple(proven.hashes), proven.note, proven.entry).text()
    return Document("text/plain; charset=utf-8", text.encode())


async def list_checkpoints(
    audit: Audit, caller: Caller, request: ListRequest
) -> Page[KeptCheckpoint]:
    """List the signed checkpoints of the audit trail, newest first."""
    tenant_id, before = caller.tenant_id, request.seq()
    async with audit.store.reading(tenant_id) as connection:
        rows = await checkpoints.page(connection, tenant_id, before, request.limit + 1)
    quorum, keys = audit.witness_quorum, [each.key for each in audit.witnesses]
    return page_of(
        rows,
        request.limit,
        lambda row: (row.number,),
        lambda row: _listed_checkpoint(row, quorum, keys),
    )


def _listed_checkpoint(
    row: StoredCheckpoint, quorum: int, keys: Collection[VerifierKey]
) -> KeptCheckpoint:
    # As they were verified when they arrived: the log's verification does it again.
    level = Level.witnessed if 0 < quorum <= row.witnesses else Level.signed
    return KeptCheckpoint(
        size=row.size,
        root=b64(row.root_hash),
        signed_at=rfc3339(row.signed_at),
        witnesses=row.witnesses,
        witness_names=cosigners(row.note, keys),
        level=level.value,
        origin=row.origin,
    )


class CheckpointRequest(RequestModel):
    """A request for a signed checkpoint: the one of `size` entries, by default the latest."""

    size: LogSize | None = None


async def show_checkpoint(audit: Audit, caller: Caller, request: CheckpointRequest) -> Document:
    """Show the latest signed checkpoint of the audit trail, or the one of a size."""
    async with audit.store.reading(caller.tenant_id) as connection:
        if request.size is None:
            found = await checkpoints.latest(connection, caller.tenant_id)
        else:
            found = await checkpoints.at(connection, caller.tenant_id, request.size)
    if found is None:
        of = "" if request.size is None else f" of {request.size} entries"
        raise NotFound(f"no checkpoint{of}: the list of checkpoints shows those that are kept")
    return Document("text/plain; charset=utf-8", found.note.encode())


async def show_log_keys(audit: Audit, caller: Caller, _: EmptyRequest) -> LogKeys:
    """Show the public key that signs the audit trail, and how earlier ones led to it.

    A reader who keeps the first key that it saw can tell a rotation, which the old key endorses,
    from another log in this one's place.
    """
    async with audit.store.reading_all_tenants() as connection:
        key = await log_keys.current(connection)
        chain = await log_keys.endorsements(connection)
    async with audit.store.reading(caller.tenant_id) as connection:
        accepted = await checkpoints.current(connection, caller.tenant_id)
    return LogKeys(
        b64(key or audit.ring.signer.public),
        [each.to_wire() for each in chain],
        [each.key.text() for each in audit.witnesses],
        None if accepted is None else _incarnation(*accepted),
    )


def _incarnation(made: StoredIncarnation, event_id: str) -> AcceptedIncarnation:
    return AcceptedIncarnation(made.number, made.origin, event_id, rfc3339(made.accepted_at))
