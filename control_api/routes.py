"""The table of routes: method, path, scopes, use case, success status and other errors.

Dispatch, authentication, scope checks, parsing, the OpenAPI description and the tests all derive
from it. The request and response types are in the use case's signature. A feature has its own
table, and stands here as a whole; of all else the module imports every use case.
"""

from control_api.alerts import routes as alerts
from control_api.exports.formats import NDJSON
from control_api.http.route import Route
from control_api.http.scopes import ADMIN, EVALUATE, OPEN, PEOPLE, READ, SIDECAR, SUPERADMIN
from control_api.requests.policy import MAX_SET_BODY
from control_api.settings import Settings
from control_api.use_cases.agents.change_agent_status import change_agent_status
from control_api.use_cases.agents.get_agent import get_agent
from control_api.use_cases.agents.list_agents import list_agents
from control_api.use_cases.agents.register_agent import register_agent
from control_api.use_cases.agents.show_registry_counts import show_registry_counts
from control_api.use_cases.agents.update_agent import update_agent
from control_api.use_cases.audit.export_log import export_log
from control_api.use_cases.audit.ingest_events import ingest_events
from control_api.use_cases.audit.list_changes import list_changes
from control_api.use_cases.audit.list_checkpoints import list_checkpoints
from control_api.use_cases.audit.list_events import list_events
from control_api.use_cases.audit.list_rejected_records import list_rejected_records
from control_api.use_cases.audit.prove_consistency import prove_consistency
from control_api.use_cases.audit.prove_event import prove_event
from control_api.use_cases.audit.retention_settings import (
    change_retention_settings,
    show_retention_settings,
)
from control_api.use_cases.audit.show_acknowledgements import show_acknowledgements
from control_api.use_cases.audit.show_checkpoint import show_checkpoint
from control_api.use_cases.audit.show_event import show_event
from control_api.use_cases.audit.show_lineage import show_lineage
from control_api.use_cases.audit.show_log_keys import show_log_keys
from control_api.use_cases.audit.show_retention import show_retention
from control_api.use_cases.audit.show_session_trail import show_session_trail
from control_api.use_cases.audit.show_stats import show_stats
from control_api.use_cases.audit.verification import show_verification, start_verification
from control_api.use_cases.audit.verify_log import verify_log
from control_api.use_cases.candidates.drop_candidate import drop_candidate
from control_api.use_cases.candidates.get_candidate import get_candidate
from control_api.use_cases.candidates.list_candidates import list_candidates
from control_api.use_cases.candidates.promote_candidate import promote_candidate
from control_api.use_cases.candidates.publish_candidate import publish_candidate
from control_api.use_cases.candidates.review_candidate import review_candidate
from control_api.use_cases.console.create_sign_in_link import create_sign_in_link
from control_api.use_cases.console.end_console_session import revoke_console_session
from control_api.use_cases.console.list_console_sessions import list_console_sessions
from control_api.use_cases.context.describe_service import (
    show_docs,
    show_metrics,
    show_openapi,
    show_start,
)
from control_api.use_cases.context.evaluate_batch import evaluate_batch
from control_api.use_cases.context.evaluate_context import evaluate_context
from control_api.use_cases.context.record_lineage import record_lineage
from control_api.use_cases.context.show_health import show_liveness, show_readiness
from control_api.use_cases.context.simulate_context import simulate_context
from control_api.use_cases.erasure.legal_holds import list_holds, place_hold, release_hold
from control_api.use_cases.erasure.list_redactions import list_redactions
from control_api.use_cases.erasure.redact_events import redact_events
from control_api.use_cases.guardrails.create_guardrail import create_guardrail
from control_api.use_cases.guardrails.delete_guardrail import delete_guardrail
from control_api.use_cases.guardrails.get_guardrail import get_guardrail
from control_api.use_cases.guardrails.list_guardrails import list_guardrails
from control_api.use_cases.guardrails.replace_guardrail import replace_guardrail
from control_api.use_cases.impact.show_impact import cancel_impact, show_impact
from control_api.use_cases.impact.start_impact import start_impact
from control_api.use_cases.keys.bind_key import bind_key
from control_api.use_cases.keys.create_key import create_key
from control_api.use_cases.keys.get_key import get_key
from control_api.use_cases.keys.list_keys import list_keys
from control_api.use_cases.keys.provision_key import provision_key
from control_api.use_cases.keys.revoke_key import revoke_key
from control_api.use_cases.keys.rotate_key import rotate_key
from control_api.use_cases.policies.create_policy import create_policy
from control_api.use_cases.policies.delete_policy import delete_policy
from control_api.use_cases.policies.get_policy import get_policy
from control_api.use_cases.policies.list_policies import list_policies
from control_api.use_cases.policies.list_policy_versions import list_policy_versions
from control_api.use_cases.policies.reload_policies import reload_policies
from control_api.use_cases.policies.replace_policy import replace_policy
from control_api.use_cases.policies.restore_policy import restore_policy
from control_api.use_cases.policies.show_policy_file import show_policy_file
from control_api.use_cases.policies.show_policy_files import show_policy_files
from control_api.use_cases.policy_tools.diff_policies import diff_policies
from control_api.use_cases.policy_tools.review_policies import review_policies
from control_api.use_cases.policy_tools.show_access import show_access
from control_api.use_cases.policy_tools.show_access_matrix import show_access_matrix
from control_api.use_cases.sessions.claim_session import claim_session
from control_api.use_cases.sessions.get_session import get_session
from control_api.use_cases.sessions.list_sessions import list_sessions
from control_api.use_cases.sessions.revoke_session import revoke_session
from control_api.use_cases.sessions.revoke_sessions import revoke_sessions
from control_api.use_cases.sidecars.enrol_sidecar import enrol_sidecar
from control_api.use_cases.sidecars.fetch_policy_set import fetch_policy_set
from control_api.use_cases.sidecars.list_sidecars import list_sidecars
from control_api.use_cases.sidecars.look_up_documents import look_up_documents
from control_api.use_cases.sidecars.report_sidecar import report_sidecar
from control_api.use_cases.sources.delete_source import delete_source
from control_api.use_cases.sources.list_sources import list_sources
from control_api.use_cases.sources.put_source import put_source
from control_api.use_cases.tenants.change_tenant_settings import change_tenant_settings
from control_api.use_cases.tenants.create_tenant import create_tenant
from control_api.use_cases.tenants.deactivate_tenant import deactivate_tenant, reactivate_tenant
from control_api.use_cases.tenants.freeze_tenant import freeze_tenant, lift_freeze, show_freeze
from control_api.use_cases.tenants.get_tenant import get_tenant
from control_api.use_cases.tenants.list_tenants import list_tenants
from policies.trail.log_file.lines import MEDIA_TYPE

# Anyone may send this body, without a key.
ENROL = 16 * 1024

# Named, because it may move to a port of its own (`routes_of`).
METRICS = Route("GET", "/metrics", OPEN, show_metrics, content_type="text/plain")

CHECKPOINT = Route(
    "GET", "/v1/audit/checkpoint", READ, show_checkpoint, content_type="text/plain", errors=(404,)
)
PROOF = Route(
    "GET",
    "/v1/audit/proof/{event_id}",
    READ,
    prove_event,
    content_type="text/plain",
    errors=(409,),
)

EXPORT = Route(
    "GET",
    "/v1/audit/export",
    READ,
    export_log,
    errors=(404, 409),
    content_type=MEDIA_TYPE,
    other_content_types=(NDJSON, "text/csv"),
    of_log=True,
)

IMPACT = Route(
    "POST", "/v1/policies/impact", ADMIN, start_impact, 202, (404, 409), max_body=MAX_SET_BODY
)

ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/context/evaluate", EVALUATE, evaluate_context),
    Route("POST", "/v1/context/evaluate/batch", EVALUATE, evaluate_batch),
    Route("POST", "/v1/context/simulate", READ, simulate_context),
    Route("GET", "/v1/audit/events", READ, list_events, of_log=True),
    Route("GET", "/v1/audit/events/{event_id}", READ, show_event, of_log=True),
    Route("GET", "/v1/audit/changes", READ, list_changes, of_log=True),
    Route("GET", "/v1/audit/rejected-records", READ, list_rejected_records, of_log=True),
    Route("GET", "/v1/audit/log-keys", READ, show_log_keys),
    Route("GET", "/v1/audit/acknowledgements", READ, show_acknowledgements),
    Route("GET", "/v1/audit/stats", READ, show_stats, of_log=True),
    Route("GET", "/v1/audit/verify", READ, verify_log),
    Route("GET", "/v1/audit/verification", READ, show_verification),
    Route("POST", "/v1/audit/verification", READ, start_verification, 202),
    CHECKPOINT,
    Route("GET", "/v1/audit/checkpoints", READ, list_checkpoints),
    EXPORT,
    PROOF,
    Route("GET", "/v1/audit/consistency", READ, prove_consistency, errors=(404, 409)),
    Route("GET", "/v1/audit/retention", READ, show_retention),
    Route("GET", "/v1/audit/sessions/{session_id}", READ, show_session_trail, of_log=True),
    Route("POST", "/v1/audit/lineage", EVALUATE, record_lineage, 201, errors=(404,)),
    Route("GET", "/v1/audit/lineage/{event_id}", READ, show_lineage, of_log=True),
    Route("POST", "/v1/audit/redact", ADMIN, redact_events, errors=(409,)),
    Route("GET", "/v1/audit/redactions", READ, list_redactions, of_log=True),
    Route("GET", "/v1/audit/holds", READ, list_holds),
    Route("POST", "/v1/audit/holds", ADMIN, place_hold, 201, errors=(409,)),
    Route("POST", "/v1/audit/holds/{hold_id}/release", ADMIN, release_hold),
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
    Route("GET", "/v1/agents", READ, list_agents),
    Route("POST", "/v1/agents", ADMIN, register_agent, 201, errors=(409,)),
    Route("GET", "/v1/agents/stats/summary", READ, show_registry_counts, of_log=True),
    Route("GET", "/v1/agents/{agent_id}", READ, get_agent, of_log=True),
    Route("PUT", "/v1/agents/{agent_id}", ADMIN, update_agent, errors=(409,)),
    Route("PATCH", "/v1/agents/{agent_id}/status", ADMIN, change_agent_status, errors=(409,)),
    Route("GET", "/v1/keys", READ, list_keys),
    Route("POST", "/v1/keys", ADMIN, create_key, 201, errors=(409,)),
    Route("GET", "/v1/keys/{key_id}", READ, get_key),
    Route("DELETE", "/v1/keys/{key_id}", ADMIN, revoke_key),
    Route("PATCH", "/v1/keys/{key_id}/binding", ADMIN, bind_key),
    Route("POST", "/v1/keys/{key_id}/rotate", ADMIN, rotate_key, 201, errors=(409,)),
    *alerts.ROUTES,
    Route("GET", "/v1/settings/retention", READ, show_retention_settings),
    Route("PUT", "/v1/settings/retention", ADMIN, change_retention_settings),
    Route("GET", "/v1/sessions", READ, list_sessions),
    # A session may have the id `revoke`; GET and DELETE must still reach it.
    Route("POST", "/v1/sessions/revoke", ADMIN, revoke_sessions, falls_through=True),
    Route("GET", "/v1/sessions/{session_id}", READ, get_session, of_log=True),
    Route("DELETE", "/v1/sessions/{session_id}", ADMIN, revoke_session),
    Route("POST", "/v1/console/sign-in-links", PEOPLE, create_sign_in_link, 201, (404,)),
    Route("GET", "/v1/console/sessions", PEOPLE, list_console_sessions),
    Route("DELETE", "/v1/console/sessions/{session_id}", PEOPLE, revoke_console_session),
    Route("GET", "/v1/freeze", READ, show_freeze),
    Route("POST", "/v1/freeze", ADMIN, freeze_tenant),
    Route("DELETE", "/v1/freeze", ADMIN, lift_freeze),
    Route("GET", "/v1/admin/tenants", SUPERADMIN, list_tenants),
    Route("POST", "/v1/admin/tenants", SUPERADMIN, create_tenant, 201, errors=(409,)),
    Route("GET", "/v1/admin/tenants/{tenant_id}", SUPERADMIN, get_tenant),
    Route("DELETE", "/v1/admin/tenants/{tenant_id}", SUPERADMIN, deactivate_tenant),
    Route("POST", "/v1/admin/tenants/{tenant_id}/reactivate", SUPERADMIN, reactivate_tenant),
    Route("PATCH", "/v1/admin/tenants/{tenant_id}/settings", SUPERADMIN, change_tenant_settings),
    Route("POST", "/v1/admin/tenants/{tenant_id}/keys", SUPERADMIN, provision_key, 201, (409,)),
    Route("GET", "/v1/sidecars", READ, list_sidecars),
    Route("POST", "/v1/sidecars/enrol", OPEN, enrol_sidecar, errors=(403, 429), max_body=ENROL),
    Route("POST", "/v1/sidecars/report", SIDECAR, report_sidecar),
    Route("GET", "/v1/sidecars/policy-set", SIDECAR, fetch_policy_set),
    Route("POST", "/v1/sidecars/policy-set/documents", SIDECAR, look_up_documents),
    Route("POST", "/v1/sidecars/sessions/claim", SIDECAR, claim_session),
    Route("POST", "/v1/sidecars/events", SIDECAR, ingest_events, errors=(409, 429)),
    Route("GET", "/health", OPEN, show_liveness),
    Route("GET", "/health/ready", OPEN, show_readiness, errors=(503,)),
    METRICS,
    Route("GET", "/openapi.json", OPEN, show_openapi),
    Route("GET", "/docs", OPEN, show_docs, content_type="text/html"),
    Route("GET", "/", OPEN, show_start, 302, content_type="text/plain"),
)


def routes_of(settings: Settings) -> tuple[Route, ...]:
    """The API's routes. `/metrics` is not among them if it has its own port."""
    # On a port of its own, `/metrics` must not be reachable on the public one as well.
    own_port = settings.metrics_listen is not None
    return tuple(route for route in ROUTES if not (own_port and route is METRICS))
