"""Lists the routes of policies, guardrails, candidates, impact runs, and questions about them."""

from control_api.edge.route import ADMIN, READ, Route
from control_api.policy import access_operations as access
from control_api.policy import candidate_operations as candidates
from control_api.policy import guardrail_operations as guardrails
from control_api.policy import impact_operations as impact
from control_api.policy import operations
from control_api.policy import source_operations as sources
from control_api.policy.models import MAX_SET_BODY

IMPACT = Route(
    "POST",
    "/v1/policies/impact",
    ADMIN,
    impact.start_impact,
    202,
    (404, 409),
    max_body=MAX_SET_BODY,
)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/policies", READ, operations.list_policies),
    Route("POST", "/v1/policies", ADMIN, operations.create_policy, 201, errors=(409,)),
    Route("POST", "/v1/policies/diff", READ, access.diff_policies, max_body=MAX_SET_BODY),
    Route("POST", "/v1/policies/review", READ, access.review_policies, max_body=MAX_SET_BODY),
    Route("GET", "/v1/policies/access", READ, access.show_access),
    Route("GET", "/v1/policies/access/matrix", READ, access.show_access_matrix),
    Route("GET", "/v1/policies/files", READ, operations.show_policy_files),
    Route("POST", "/v1/policies/reload", ADMIN, operations.reload_policies, errors=(409,)),
    IMPACT,
    Route("GET", "/v1/policies/impact/{impact_id}", READ, impact.show_impact),
    Route("DELETE", "/v1/policies/impact/{impact_id}", ADMIN, impact.cancel_impact),
    Route("GET", "/v1/policies/candidates", READ, candidates.list_candidates),
    Route("GET", "/v1/policies/candidates/{name}", READ, candidates.get_candidate),
    Route(
        "PUT",
        "/v1/policies/candidates/{name}",
        ADMIN,
        candidates.publish_candidate,
        errors=(409,),
        max_body=MAX_SET_BODY,
    ),
    Route("DELETE", "/v1/policies/candidates/{name}", ADMIN, candidates.drop_candidate),
    Route("GET", "/v1/policies/candidates/{name}/review", READ, candidates.review_candidate),
    Route(
        "POST",
        "/v1/policies/candidates/{name}/promote",
        ADMIN,
        candidates.promote_candidate,
        errors=(409, 412),
    ),
    Route("GET", "/v1/policies/{policy_id}", READ, operations.get_policy),
    Route("PUT", "/v1/policies/{policy_id}", ADMIN, operations.replace_policy, errors=(409, 412)),
    Route("DELETE", "/v1/policies/{policy_id}", ADMIN, operations.delete_policy, errors=(409,)),
    Route("GET", "/v1/policies/{policy_id}/history", READ, operations.list_policy_versions),
    Route("GET", "/v1/policies/{policy_id}/file", READ, operations.show_policy_file),
    Route(
        "POST", "/v1/policies/{policy_id}/restore", ADMIN, operations.restore_policy, errors=(409,)
    ),
    Route("GET", "/v1/guardrails", READ, guardrails.list_guardrails),
    Route("POST", "/v1/guardrails", ADMIN, guardrails.create_guardrail, 201, errors=(409,)),
    Route("GET", "/v1/guardrails/{name}", READ, guardrails.get_guardrail),
    Route("PUT", "/v1/guardrails/{name}", ADMIN, guardrails.replace_guardrail, errors=(409,)),
    Route("DELETE", "/v1/guardrails/{name}", ADMIN, guardrails.delete_guardrail, errors=(409,)),
    Route("GET", "/v1/sources", READ, sources.list_sources),
    Route("PUT", "/v1/sources/{source_pattern}", ADMIN, sources.put_source, errors=(409,)),
    Route("DELETE", "/v1/sources/{source_pattern}", ADMIN, sources.delete_source),
)
