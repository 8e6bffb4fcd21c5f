"""Decides whether an agent may retrieve from a source, and records the decision."""

from typing import Annotated

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.decisions import decide_and_record
from control_api.presenters import explained
from control_api.requests.retrieval import AskedRetrieval, EvaluationRequest
from control_api.responses.evaluations import Evaluated, Explained


async def evaluate_context(
    app: AppContext, caller: Caller, request: Annotated[EvaluationRequest, AskedRetrieval]
) -> Evaluated | Explained:
    """Decide whether an agent may retrieve from a data source; a `DENY` is answered with 200."""
    retrieval = request.retrieval
    decision, facts, event_id = await decide_and_record(app, caller, retrieval)
    answer = Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)
    return explained(answer, retrieval, facts, decision) if request.explain else answer
