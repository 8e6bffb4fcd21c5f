"""Verifies a tenant's log. The response is 200 whether the log is valid or not."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.checkpoints.level import level_of
from control_api.departure import ends_with_client
from control_api.log.verify import verify
from control_api.requests.base import EmptyRequest
from control_api.responses.audit import PurgeAnchor, SignedCheckpoint, Verified
from control_api.store.queries import log_keys
from control_api.store.queries.checkpoints import readable_latest


@ends_with_client
async def verify_log(app: AppContext, caller: Caller, _: EmptyRequest) -> Verified:
    """Verify the tenant's audit trail; the response names the first entry that fails, if any."""
    tenant_id = caller.tenant_id
    # All keys of the chain: a former key's signatures stay valid after a rotation.
    publics = await log_keys.trusted(app.store, app.ring)
    # Before the log is read: what is signed meanwhile may be of more entries than were read.
    signed = await app.checkpoints.signed(tenant_id)
    report = await verify(app.store, tenant_id, publics, signed)
    async with app.store.reading(tenant_id) as connection:
        latest = await readable_latest(connection, tenant_id)
    settings, note = app.settings, None if latest is None else latest.note
    keys = [each.key for each in settings.witnesses]
    origin = "" if latest is None else latest.origin
    level, count = level_of(note, origin, publics, keys, settings.witness_quorum)
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
