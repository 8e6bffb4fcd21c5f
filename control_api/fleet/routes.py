"""Lists the routes of sidecars."""

from control_api.edge.route import OPEN, READ, SIDECAR, Route
from control_api.fleet import ingest_operations as claims
from control_api.fleet import ingest_operations as ingestion
from control_api.fleet import operations

# Anyone may send this body, without a key.
ENROL = 16 * 1024


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/sidecars", READ, operations.list_sidecars),
    Route(
        "POST",
        "/v1/sidecars/enrol",
        OPEN,
        operations.enrol_sidecar,
        errors=(403, 429),
        max_body=ENROL,
    ),
    Route("POST", "/v1/sidecars/report", SIDECAR, operations.report_sidecar),
    Route("GET", "/v1/sidecars/policy-set", SIDECAR, operations.fetch_policy_set),
    Route("POST", "/v1/sidecars/policy-set/documents", SIDECAR, operations.look_up_documents),
    Route("POST", "/v1/sidecars/sessions/claim", SIDECAR, claims.claim_session),
    Route("POST", "/v1/sidecars/events", SIDECAR, ingestion.ingest_events, errors=(409, 429)),
)
