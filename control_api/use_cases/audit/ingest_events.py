"""Take in what a sidecar recorded, exactly once, and sign for it.

The receipt leaves after the commit: a sidecar deletes what it signs for.
"""

from typing import Any, ClassVar

from control_api.app_context import MOST_BATCHES, AppContext
from control_api.auth.principal import Caller
from control_api.log.ingest import ingest
from control_api.metrics.metrics import Ingest
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.sidecars import Receipt
from policies.ground.canonical import b64
from policies.ground.errors import Conflict, Invalid, Unavailable
from policies.ground.signing import receipt_message
from policies.trail.record_fast_path import match_batch


class NewRecords(RequestModel):
    """A batch out of a spool: records as they lie there, in order, without gaps.

    What a record is, is judged where it is taken in: its bytes are hashed again there, so that a
    key that stands twice in it can deceive nobody.
    """

    unique: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {
        "source": "sidecar-1",
        "instance": "6f1d2a9c",
        "records": [],
    }

    source: Identifier
    instance: Identifier
    records: list[Any]

    @classmethod
    def by_bytes(cls, body: bytes) -> "NewRecords | None":
        batch = match_batch(body)
        return None if batch is None else cls.model_construct(**batch._asdict())


async def ingest_events(service: AppContext, caller: Caller, asked: NewRecords) -> Receipt:
    """Deliver a batch of a sidecar's records; those that are held already are passed over."""
    tenant_id = caller.tenant.tenant_id
    count = service.instruments.ingested.labels
    if service.ingesting.locked():
        raise Unavailable(f"{MOST_BATCHES} batches are being taken in already: come again")
    try:
        async with service.ingesting:
            held = await ingest(
                service.store,
                tenant_id,
                asked.source,
                asked.instance,
                asked.records,
                turn=service.reading,
            )
    except (Conflict, Invalid):
        count(Ingest.refused).inc(len(asked.records))
        raise
    count(Ingest.held).inc(len(asked.records))
    message = receipt_message(tenant_id, asked.source, asked.instance, held.n, held.hash)
    signature = service.signer.sign(message)
    return Receipt(asked.source, asked.instance, held.n, b64(held.hash), b64(signature))
