"""Shows the decision that an evaluation would make. Records nothing and claims no session."""

from typing import Annotated

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.decisions import decide
from control_api.presenters import explained
from control_api.requests.retrieval import AskedRetrieval, EvaluationRequest
from control_api.responses.evaluations import Explained, Simulated
from control_api.store.queries import sessions
from policies.definitions.model import Session
from policies.retrieval import Retrieval


async def simulate_context(
    app: AppContext, caller: Caller, request: Annotated[EvaluationRequest, AskedRetrieval]
) -> Simulated | Explained:
    """Tell what an evaluation by this key would answer; nothing is recorded."""
    retrieval = request.retrieval
    await caller.tenant.need_for(retrieval)
    session = await _current_session(app, caller, retrieval)
    decision, facts = decide(caller, retrieval, session)
    answer = Simulated(decision.decision, decision.policy_name, decision.reason)
    return explained(answer, retrieval, facts, decision) if request.explain else answer


async def _current_session(app: AppContext, caller: Caller, retrieval: Retrieval) -> Session | None:
    """The session's current state; None if the retrieval names none, or one that no call has
    claimed yet."""
    if retrieval.session_id is None:
        return None
    async with app.store.reading(caller.tenant_id) as connection:
        row = await sessions.look_up(connection, caller.tenant_id, retrieval.session_id)
    return None if row is None else row.at(app.clock.now())
