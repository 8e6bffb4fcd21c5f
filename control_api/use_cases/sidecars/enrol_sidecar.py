"""Enrols a pod's sidecar by its ServiceAccount token. No API key is needed: the token is one."""

from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from control_api.app_context import AppContext
from control_api.enrolment.registry import LIFETIME_SECONDS, Enrolled
from control_api.enrolment.token import MAX_TOKEN
from control_api.requests.base import RequestModel
from control_api.responses.sidecars import EnrolledSidecar
from policies.ground.canonical import rfc3339

# The description says what a token looks like. The check of the request does not: one of another
# form is refused and recorded like any that is hostile.
Token = Annotated[
    str,
    Field(min_length=1),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_TOKEN,
            "pattern": r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
        }
    ),
]


class SidecarToken(RequestModel):
    """The projected token of the pod's service account, with the audience `sluice`."""

    example: ClassVar[dict[str, Any]] = {"token": "eyJhbGciOiJSUzI1NiIsImtpZCI6InMxIn0.e30.c2ln"}

    token: Token


async def enrol_sidecar(app: AppContext, _: None, request: SidecarToken) -> EnrolledSidecar:
    """Exchange a pod's ServiceAccount token for a sidecar's key and its agent's key.

    The keys live an hour and die with the agent: when it is suspended or deprecated, or its
    workload is changed. A workload that no agent has registers one as a draft. While the agent
    waits for approval the keys are null: ask again.
    """
    return _shown(await app.enrolments.enrol(request.token))


def _shown(enrolled: Enrolled) -> EnrolledSidecar:
    """The answer to an enrolment, the only place where the keys' secrets are shown."""
    agent, keys = enrolled.agent, enrolled.keys
    return EnrolledSidecar(
        tenant_id=enrolled.tenant_id,
        workload=str(agent.workload),
        agent_id=agent.agent_id,
        agent_role=agent.agent_role,
        status=agent.status,
        enrolment=None if keys is None else keys.agent.generation,
        sidecar_key=None if keys is None else keys.sidecar_secret,
        agent_key=None if keys is None else keys.agent_secret,
        agent_key_id=None if keys is None else keys.agent.key_id,
        expires_at=None if keys is None else rfc3339(keys.agent.expires_at),
        # A lifetime as well as a time: the pod's clock may be wrong.
        expires_in=None if keys is None else LIFETIME_SECONDS,
    )
