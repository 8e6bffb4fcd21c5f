"""The routes of sidecars."""

from control_api.edge.route import OPEN, READ, SIDECAR, Route
from control_api.fleet.claim_operations import claim_session
from control_api.fleet.ingest_operations import ingest_events
from control_api.fleet.operations import (
    enrol_sidecar,
    fetch_policy_set,
    list_sidecars,
    look_up_documents,
    report_sidecar,
)

# Anyone may send this body, without a key.
ENROL = 16 * 1024


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/sidecars", READ, list_sidecars),
    Route("POST", "/v1/sidecars/enrol", OPEN, enrol_sidecar, errors=(403, 429), max_body=ENROL),
    Route("POST", "/v1/sidecars/report", SIDECAR, report_sidecar),
    Route("GET", "/v1/sidecars/policy-set", SIDECAR, fetch_policy_set),
    Route("POST", "/v1/sidecars/policy-set/documents", SIDECAR, look_up_documents),
    Route("POST", "/v1/sidecars/sessions/claim", SIDECAR, claim_session),
    Route("POST", "/v1/sidecars/events", SIDECAR, ingest_events, errors=(409, 429)),
)
