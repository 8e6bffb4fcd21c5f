"""Shows the public keys that sign the audit trail."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import EmptyRequest
from control_api.responses.proofs import AcceptedIncarnation, LogKeys
from control_api.store.queries import incarnation_entries, log_keys
from control_api.store.queries.checkpoints import StoredIncarnation
from policies.ground.canonical import b64, rfc3339


async def show_log_keys(app: AppContext, caller: Caller, _: EmptyRequest) -> LogKeys:
    """Show the public key that signs the audit trail, and how earlier ones led to it.

    A reader who keeps the first key that it saw can tell a rotation, which the old key endorses,
    from another log in this one's place.
    """
    async with app.store.reading_all_tenants() as connection:
        key = await log_keys.current(connection)
        chain = await log_keys.endorsements(connection)
    async with app.store.reading(caller.tenant_id) as connection:
        accepted = await incarnation_entries.current(connection, caller.tenant_id)
    return LogKeys(
        b64(key or app.ring.signer.public),
        [each.to_wire() for each in chain],
        [each.key.text() for each in app.settings.witnesses],
        None if accepted is None else _shown(*accepted),
    )


def _shown(made: StoredIncarnation, event_id: str) -> AcceptedIncarnation:
    return AcceptedIncarnation(made.number, made.origin, event_id, rfc3339(made.accepted_at))
