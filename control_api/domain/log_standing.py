"""How far lists and counts of a log can be relied on: when all of it was last verified, and what
was found. Each answer that depends on the log says so in its head. Verifies nothing itself."""

from collections.abc import Mapping
from typing import NamedTuple

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.store.queries import count_checks, self_checks
from control_api.store.queries.count_checks import CountCheck
from control_api.store.queries.self_checks import SelfCheck
from policies.ground.canonical import rfc3339

VERIFICATION, VERIFIED_AT = "X-Sluice-Verification", "X-Sluice-Verified-At"


class LogStanding(NamedTuple):
    """The code of the finding, or else `ok` or `never`; and when all of the log was last verified
    (microseconds), None for never."""

    verification: str
    verified_at: int | None

    def headers(self) -> dict[str, str]:
        shown = {VERIFICATION: self.verification}
        if self.verified_at is not None:
            shown[VERIFIED_AT] = rfc3339(self.verified_at)
        return shown


async def standing_headers(app: AppContext, caller: object) -> Mapping[str, str]:
    """The headers of an answer to this caller; none for the superadmin, who has no log."""
    if not isinstance(caller, Caller):
        return {}
    return (await read_standing(app, caller.tenant_id)).headers()


async def read_standing(app: AppContext, tenant_id: str) -> LogStanding:
    """What is known of the tenant's log."""
    async with app.store.reading(tenant_id) as connection:
        state = await self_checks.state(connection, tenant_id)
        counts = await count_checks.state(connection, tenant_id)
    diverged = app.checkpoints.diverged.get(tenant_id)
    found = (
        None if state is None else state.reason,
        None if diverged is None else diverged.text(),
        counts.reason,
    )
    reason = next((each for each in found if each is not None), None)
    at = verified_at(state, counts)
    if reason is not None:
        return LogStanding(reason.partition(":")[0], at)
    return LogStanding("never" if at is None else "ok", at)


def verified_at(state: SelfCheck | None, counts: CountCheck) -> int | None:
    """When the entries and the counts were last verified, all of them; None until both were."""
    if state is None or state.verified_at is None or counts.checked_at is None:
        return None
    return min(state.verified_at, counts.checked_at)
