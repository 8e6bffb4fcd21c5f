"""The routes of the audit trail: events, proofs, verification, retention, erasure, exports."""

from control_api.audit.change_operations import (
    list_changes,
    list_rejected_records,
    show_acknowledgements,
)
from control_api.audit.erasure_operations import (
    list_holds,
    list_redactions,
    place_hold,
    redact_events,
    release_hold,
)
from control_api.audit.event_operations import (
    list_events,
    show_event,
    show_lineage,
    show_session_trail,
)
from control_api.audit.export_operations import export_log
from control_api.audit.proof_operations import (
    list_checkpoints,
    prove_consistency,
    prove_event,
    show_checkpoint,
    show_log_keys,
)
from control_api.audit.retention_operations import (
    change_retention_settings,
    show_retention,
    show_retention_settings,
)
from control_api.audit.stats_operations import show_stats
from control_api.audit.verification_operations import (
    show_verification,
    start_verification,
    verify_log,
)
from control_api.edge.route import ADMIN, READ, Route
from control_api.log.formats import NDJSON
from policies.trail.log_file.lines import MEDIA_TYPE

CHECKPOINT = Route(
    "GET", "/v1/audit/checkpoint", READ, show_checkpoint, content_type="text/plain", errors=(404,)
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
PROOF = Route(
    "GET",
    "/v1/audit/proof/{event_id}",
    READ,
    prove_event,
    content_type="text/plain",
    errors=(409,),
)

ROUTES: tuple[Route, ...] = (
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
    Route("GET", "/v1/audit/lineage/{event_id}", READ, show_lineage, of_log=True),
    Route("POST", "/v1/audit/redact", ADMIN, redact_events, errors=(409,)),
    Route("GET", "/v1/audit/redactions", READ, list_redactions, of_log=True),
    Route("GET", "/v1/audit/holds", READ, list_holds),
    Route("POST", "/v1/audit/holds", ADMIN, place_hold, 201, errors=(409,)),
    Route("POST", "/v1/audit/holds/{hold_id}/release", ADMIN, release_hold),
    Route("GET", "/v1/settings/retention", READ, show_retention_settings),
    Route("PUT", "/v1/settings/retention", ADMIN, change_retention_settings),
)
