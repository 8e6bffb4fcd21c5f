"""Shows one audit event, with the explanation of its decision."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.source_suggestion import suggest_of_others
from control_api.log import read
from control_api.presenters import explanation_shown
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.audit import AuditEvent
from control_api.responses.evaluations import ExplainedEvent
from policies.explain import Unexplained


class EventRequest(RequestModel):
    """Names one event."""

    event_id: Identifier


async def show_event(app: AppContext, caller: Caller, request: EventRequest) -> ExplainedEvent:
    """Show one audit event and why it was decided so.

    The explanation follows from the facts and policies that the event's own entry cites, not from
    those of today. If it can't be made, `unexplained` says why. `suggestion` helps those who write
    policies: an agent is never shown it.
    """
    found = await read.explained_event(app.store, caller.tenant_id, request.event_id)
    event, explanation = AuditEvent(**found.event), found.explanation
    if isinstance(explanation, Unexplained):
        return ExplainedEvent(event, None, explanation.value, None)
    suggestion = explanation["suggestion"]
    if event.check == "policy_exists":
        # Its role has no policy, so the entry cites none: another role's may name the source.
        suggestion = await suggest_of_others(app.store, caller.tenant_id, event.source_id)
    return ExplainedEvent(event, explanation_shown(explanation), None, suggestion)
