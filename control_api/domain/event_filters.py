"""The filters of events that a request names, in the log's form."""

from control_api.log.search import EventFilters
from control_api.requests.event_filters import EventValues
from policies.ground.canonical import micros


def event_filters(values: EventValues, since: str | None, until: str | None) -> EventFilters:
    """What an event must have. Its time must be at or after `since` and before `until`, both in the
    log's form."""
    return EventFilters(
        agent_role=values.agent_role,
        decision=values.decision,
        source_id=values.source_id,
        user_id=values.user_id,
        agent_id=values.agent_id,
        session_id=values.session_id,
        policy_name=values.policy_name,
        since=None if since is None else micros(since),
        until=None if until is None else micros(until),
    )
