"""Takes in a batch of a sidecar's records, exactly once, and signs a receipt for it."""

from typing import Any, ClassVar

from control_api.app_context import MAX_BATCHES, AppContext
from control_api.auth.principal import Caller
from control_api.log.ingest import ingest
from control_api.metrics.labels import Ingest
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.sidecars import Receipt
from policies.ground.canonical import b64
from policies.ground.errors import Conflict, Invalid, Unavailable
from policies.ground.signing import receipt_message
from policies.trail.record_fast_path import match_batch


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
    try:
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
            )
    except (Conflict, Invalid):
        count(Ingest.refused).inc(len(request.records))
        raise
    # Committed. If we die here, the sidecar sends the batch again, which adds nothing, and gets its
    # receipt then. The receipt must not leave before the commit: the sidecar deletes the records
    # that it covers.
    count(Ingest.held).inc(len(request.records))
    message = receipt_message(tenant_id, request.source, request.instance, held.n, held.hash)
    signature = app.signer.sign(message)
    return Receipt(request.source, request.instance, held.n, b64(held.hash), b64(signature))
