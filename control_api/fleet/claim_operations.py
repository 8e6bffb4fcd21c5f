"""Claims a session for an agent behind a sidecar. The role and agent of the first claim own the
session, whichever sidecar makes it."""

from typing import Any, ClassVar

from control_api.auth import Caller
from control_api.edge.requests import Identifier, RequestModel
from control_api.fleet.bundle import Fleet
from control_api.sessions.models import ClaimedSession
from control_api.sessions.operations import claim
from policies.ground.canonical import rfc3339
from policies.sets.policy_set import TENANT, role_name


class NewSession(RequestModel):
    """The session and its would-be owner. The sidecar has already run checks 1 to 4."""

    example: ClassVar[dict[str, Any]] = {
        "session_id": "s-77",
        "agent_role": "loan_underwriter",
        "agent_id": "agt_loans",
        "user_id": "u-1001",
    }

    session_id: Identifier
    agent_role: Identifier
    agent_id: Identifier | None = None
    user_id: Identifier


async def claim_session(fleet: Fleet, caller: Caller, request: NewSession) -> ClaimedSession:
    """Claim a session, or learn who owns it and whether it is active."""
    tenant = caller.tenant
    await fleet.isolation.require_agent(caller, request.agent_id, "claim_session")
    # These documents give the session's lifetime, and say whether to mask its user.
    await tenant.need((TENANT, role_name(request.agent_role)))
    row = await claim(
        fleet.sessions,
        tenant,
        request.session_id,
        request.agent_role,
        request.agent_id,
        request.user_id,
    )
    # Committed. If we die here, Redis lacks the claim: the next sidecar asks the API for it and
    # gets this row.
    if fleet.sessions.publishing is not None:
        fleet.sessions.publishing.session(tenant.tenant_id, row)
    return ClaimedSession(
        session_id=row.session_id,
        state=row.state(fleet.clock.now()),
        agent_role=row.agent_role,
        agent_id=row.agent_id,
        expires_at=rfc3339(row.expires_at),
    )
