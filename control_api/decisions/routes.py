"""The routes of decisions, and of the lineage that is recorded on them."""

from control_api.decisions.operations import (
    evaluate_batch,
    evaluate_context,
    record_lineage,
    simulate_context,
)
from control_api.edge.route import EVALUATE, READ, Route

ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/context/evaluate", EVALUATE, evaluate_context),
    Route("POST", "/v1/context/evaluate/batch", EVALUATE, evaluate_batch),
    Route("POST", "/v1/context/simulate", READ, simulate_context),
    Route("POST", "/v1/audit/lineage", EVALUATE, record_lineage, 201, errors=(404,)),
)
