"""The routes of policies, guardrails, candidates, impact runs, and questions about them."""

from control_api.edge.route import ADMIN, READ, Route
from control_api.policy.access_operations import (
    diff_policies,
    review_policies,
    show_access,
    show_access_matrix,
)
from control_api.policy.candidate_operations import (
    drop_candidate,
    get_candidate,
    list_candidates,
    promote_candidate,
    publish_candidate,
    review_candidate,
)
from control_api.policy.guardrail_operations import (
    create_guardrail,
    delete_guardrail,
    get_guardrail,
    list_guardrails,
    replace_guardrail,
)
from control_api.policy.impact_operations import cancel_impact, show_impact, start_impact
from control_api.policy.models import MAX_SET_BODY
from control_api.policy.operations import (
    create_policy,
    delete_policy,
    get_policy,
    list_policies,
    list_policy_versions,
    reload_policies,
    replace_policy,
    restore_policy,
    show_policy_file,
    show_policy_files,
)
from control_api.policy.source_operations import delete_source, list_sources, put_source

IMPACT = Route(
    "POST", "/v1/policies/impact", ADMIN, start_impact, 202, (404, 409), max_body=MAX_SET_BODY
)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/policies", READ, list_policies),
    Route("POST", "/v1/policies", ADMIN, create_policy, 201, errors=(409,)),
    Route("POST", "/v1/policies/diff", READ, diff_policies, max_body=MAX_SET_BODY),
    Route("POST", "/v1/policies/review", READ, review_policies, max_body=MAX_SET_BODY),
    Route("GET", "/v1/policies/access", READ, show_access),
    Route("GET", "/v1/policies/access/matrix", READ, show_access_matrix),
    Route("GET", "/v1/policies/files", READ, show_policy_files),
    Route("POST", "/v1/policies/reload", ADMIN, reload_policies, errors=(409,)),
    IMPACT,
    Route("GET", "/v1/policies/impact/{impact_id}", READ, show_impact),
    Route("DELETE", "/v1/policies/impact/{impact_id}", ADMIN, cancel_impact),
    Route("GET", "/v1/policies/candidates", READ, list_candidates),
    Route("GET", "/v1/policies/candidates/{name}", READ, get_candidate),
    Route(
        "PUT",
        "/v1/policies/candidates/{name}",
        ADMIN,
        publish_candidate,
        errors=(409,),
        max_body=MAX_SET_BODY,
    ),
    Route("DELETE", "/v1/policies/candidates/{name}", ADMIN, drop_candidate),
    Route("GET", "/v1/policies/candidates/{name}/review", READ, review_candidate),
    Route(
        "POST",
        "/v1/policies/candidates/{name}/promote",
        ADMIN,
        promote_candidate,
        errors=(409, 412),
    ),
    Route("GET", "/v1/policies/{policy_id}", READ, get_policy),
    Route("PUT", "/v1/policies/{policy_id}", ADMIN, replace_policy, errors=(409, 412)),
    Route("DELETE", "/v1/policies/{policy_id}", ADMIN, delete_policy, errors=(409,)),
    Route("GET", "/v1/policies/{policy_id}/history", READ, list_policy_versions),
    Route("GET", "/v1/policies/{policy_id}/file", READ, show_policy_file),
    Route("POST", "/v1/policies/{policy_id}/restore", ADMIN, restore_policy, errors=(409,)),
    Route("GET", "/v1/guardrails", READ, list_guardrails),
    Route("POST", "/v1/guardrails", ADMIN, create_guardrail, 201, errors=(409,)),
    Route("GET", "/v1/guardrails/{name}", READ, get_guardrail),
    Route("PUT", "/v1/guardrails/{name}", ADMIN, replace_guardrail, errors=(409,)),
    Route("DELETE", "/v1/guardrails/{name}", ADMIN, delete_guardrail, errors=(409,)),
    Route("GET", "/v1/sources", READ, list_sources),
    Route("PUT", "/v1/sources/{source_pattern}", ADMIN, put_source, errors=(409,)),
    Route("DELETE", "/v1/sources/{source_pattern}", ADMIN, delete_source),
)
