"""Says exactly what the promotion of a candidate would change."""

import orjson

from control_api.analyses import here
from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.domain.candidates import held, version
from control_api.domain.tenants import stored
from control_api.requests.candidate import CandidateRequest
from control_api.responses.audit import Document
from control_api.responses.candidates import CandidateReview
from control_api.store.queries import candidates, document_changes, documents, guardrails
from policies.sets.policy_set import ROLE

_MOST_ROLES = 100


@ends_with_client
async def review_candidate(
    app: AppContext, caller: Caller, request: CandidateRequest
) -> CandidateReview | Document:
    """Say exactly what the promotion of a candidate would newly allow and deny, and what would
    refuse it.

    Changes nothing. All of it is about the same policies in force, which `version` stands for: as
    `If-Match` of the promotion, it refuses to promote what was not reviewed.
    """
    tenant_id = caller.tenant_id
    async with app.store.snapshot(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        found = held(candidates.read_candidates(tenant.candidates), request.name)
        reviewed = await version(connection, tenant_id, found)
        bodies = {*await candidates.bodies(connection, tenant_id, found.name)}
        in_force = {*await documents.all_of(connection, tenant_id, ROLE)}
        rows = await guardrails.every(connection, tenant_id)
        changed = await document_changes.changed_names(
            connection, tenant_id, ROLE, found.revision, _MOST_ROLES
        )
    rules = orjson.dumps([each.guardrail.to_wire() for each in rows])
    options = {
        "name": found.name,
        "version": reviewed,
        "changed_since": sorted(name.removeprefix(ROLE) for name in changed),
    }
    # A role that the candidate leaves as it is has the same document (`requests/candidate.py`).
    after, before = bodies - in_force, in_force - bodies
    parts = (documents.json_array(after), documents.json_array(before), rules)
    job = Job("candidate_review", options, parts)
    tries = (len(after) + len(before)) * (1 + len(rows))
    return Document("application/json", await here.answer(app.analyses, tenant_id, job, tries))
