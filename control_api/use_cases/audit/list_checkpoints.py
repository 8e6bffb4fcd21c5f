"""Lists the signed checkpoints of the tenant's log that are kept: all of the last day, and before
that the last of each hour."""

from collections.abc import Collection

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.checkpoints.level import Level, cosigners
from control_api.requests.base import ListRequest
from control_api.responses.checkpoints import KeptCheckpoint
from control_api.responses.paging import Page, page_of
from control_api.store.queries import checkpoints
from control_api.store.queries.checkpoints import StoredCheckpoint
from policies.ground.canonical import b64, rfc3339
from policies.trail.proofs.signed_note import VerifierKey


async def list_checkpoints(
    app: AppContext, caller: Caller, request: ListRequest
) -> Page[KeptCheckpoint]:
    """List the signed checkpoints of the audit trail, newest first."""
    tenant_id, before = caller.tenant_id, request.seq()
    async with app.store.reading(tenant_id) as connection:
        rows = await checkpoints.page(connection, tenant_id, before, request.limit + 1)
    quorum, keys = app.settings.witness_quorum, [each.key for each in app.settings.witnesses]
    return page_of(
        rows, request.limit, lambda row: (row.number,), lambda row: _shown(row, quorum, keys)
    )


def _shown(row: StoredCheckpoint, quorum: int, keys: Collection[VerifierKey]) -> KeptCheckpoint:
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
