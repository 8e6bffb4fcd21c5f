"""Lists the routes of the audit trail: events, proofs, verification, retention, erasure,
exports."""

from control_api.audit import change_operations as changes
from control_api.audit import erasure_operations as erasure
from control_api.audit import event_operations as events
from control_api.audit import event_operations as stats
from control_api.audit import export_operations as exports
from control_api.audit import proof_operations as proofs
from control_api.audit import retention_operations as retention
from control_api.audit import verification_operations as verification
from control_api.edge.route import ADMIN, READ, Route
from control_api.log.formats import NDJSON
from policies.trail.log_file.lines import MEDIA_TYPE

CHECKPOINT = Route(
    "GET",
    "/v1/audit/checkpoint",
    READ,
    proofs.show_checkpoint,
    content_type="text/plain",
    errors=(404,),
)
EXPORT = Route(
    "GET",
    "/v1/audit/export",
    READ,
    exports.export_log,
    errors=(404, 409),
    content_type=MEDIA_TYPE,
    other_content_types=(NDJSON, "text/csv"),
    of_log=True,
)
PROOF = Route(
    "GET",
    "/v1/audit/proof/{event_id}",
    READ,
    proofs.prove_event,
    content_type="text/plain",
    errors=(409,),
)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/audit/events", READ, events.list_events, of_log=True),
    Route("GET", "/v1/audit/events/{event_id}", READ, events.show_event, of_log=True),
    Route("GET", "/v1/audit/changes", READ, changes.list_changes, of_log=True),
    Route("GET", "/v1/audit/rejected-records", READ, changes.list_rejected_records, of_log=True),
    Route("GET", "/v1/audit/log-keys", READ, proofs.show_log_keys),
    Route("GET", "/v1/audit/acknowledgements", READ, changes.show_acknowledgements),
    Route("GET", "/v1/audit/stats", READ, stats.show_stats, of_log=True),
    Route("GET", "/v1/audit/verify", READ, verification.verify_log),
    Route("GET", "/v1/audit/verification", READ, verification.show_verification),
    Route("POST", "/v1/audit/verification", READ, verification.start_verification, 202),
    CHECKPOINT,
    Route("GET", "/v1/audit/checkpoints", READ, proofs.list_checkpoints),
    EXPORT,
    PROOF,
    Route("GET", "/v1/audit/consistency", READ, proofs.prove_consistency, errors=(404, 409)),
    Route("GET", "/v1/audit/retention", READ, retention.show_retention),
    Route("GET", "/v1/audit/sessions/{session_id}", READ, events.show_session_trail, of_log=True),
    Route("GET", "/v1/audit/lineage/{event_id}", READ, events.show_lineage, of_log=True),
    Route("POST", "/v1/audit/redact", ADMIN, erasure.redact_events, errors=(409,)),
    Route("GET", "/v1/audit/redactions", READ, erasure.list_redactions, of_log=True),
    Route("GET", "/v1/audit/holds", READ, erasure.list_holds),
    Route("POST", "/v1/audit/holds", ADMIN, erasure.place_hold, 201, errors=(409,)),
    Route("POST", "/v1/audit/holds/{hold_id}/release", ADMIN, erasure.release_hold),
    Route("GET", "/v1/settings/retention", READ, retention.show_retention_settings),
    Route("PUT", "/v1/settings/retention", ADMIN, retention.change_retention_settings),
)
