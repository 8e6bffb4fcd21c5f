"""Lists the routes of decisions, and of the lineage that is recorded on them."""

from control_api.decisions import operations
from control_api.edge.route import EVALUATE, READ, Route

ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/context/evaluate", EVALUATE, operations.evaluate_context),
    Route("POST", "/v1/context/evaluate/batch", EVALUATE, operations.evaluate_batch),
    Route("POST", "/v1/context/simulate", READ, operations.simulate_context),
    Route("POST", "/v1/audit/lineage", EVALUATE, operations.record_lineage, 201, errors=(404,)),
)
