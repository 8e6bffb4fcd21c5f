"""Shows a candidate, and what it decides otherwise."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.candidates import held, shown_candidate
from control_api.domain.tenants import stored
from control_api.requests.candidate import CandidateRequest
from control_api.responses.candidates import CandidateShown
from control_api.store.queries import candidates


async def get_candidate(
    app: AppContext, caller: Caller, request: CandidateRequest
) -> CandidateShown:
    """Show a candidate with its counts, and the groups of events that it decides otherwise."""
    tenant_id = caller.tenant_id
    async with app.store.reading(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        found = held(candidates.read_candidates(tenant.candidates), request.name)
        counts = await candidates.totals(connection, tenant_id, found.listed)
        groups = await candidates.groups(connection, tenant_id, found.listed)
    return shown_candidate(found, counts, groups)
