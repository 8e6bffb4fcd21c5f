"""The filters of audit events, as every request has them that selects events."""

from typing import Literal

from pydantic import BaseModel

from control_api.requests.base import Identifier


class EventValues(BaseModel):
    """The values that an event must have: each is an exact match, and all must match."""

    agent_role: Identifier | None = None
    decision: Literal["ALLOW", "DENY"] | None = None
    source_id: Identifier | None = None
    user_id: Identifier | None = None
    agent_id: Identifier | None = None
    session_id: Identifier | None = None
    policy_name: Identifier | None = None
