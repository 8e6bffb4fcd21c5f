"""Claim a session for a sidecar: whoever asks first owns it, whichever sidecar that is."""

from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.sidecars import ClaimedSession
from control_api.sessions.claim import claim
from policies.ground.canonical import rfc3339
from policies.sets.policy_set import TENANT, role_name


class NewSession(RequestModel):
    """The session, and who would own it. The sidecar has judged checks 1 to 4 already."""

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


async def claim_session(service: AppContext, caller: Caller, asked: NewSession) -> ClaimedSession:
    """Claim a session, or learn who owns it and how it stands."""
    tenant = caller.tenant
    await tenant.need((TENANT, role_name(asked.agent_role)))
    row = await claim(
        service, tenant, asked.session_id, asked.agent_role, asked.agent_id, asked.user_id
    )
    # Committed. If we die here the next sidecar claims it by asking us, and is told the same.
    if service.publishing is not None:
        service.publishing.session(tenant.tenant_id, row)
    return ClaimedSession(
        session_id=row.session_id,
        state=row.state(service.clock.now()),
        agent_role=row.agent_role,
        agent_id=row.agent_id,
        expires_at=rfc3339(row.expires_at),
    )
