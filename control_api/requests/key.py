"""The fields of an API key in a request (`service.md` 4.5). Knows nothing of the store."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.requests.base import Identifier, RequestModel, Roles
from control_api.requests.idempotency import HEADER, IdempotencyKey
from policies.definitions.model import Scope
from policies.ground.errors import invalid

DEFAULT_DAYS = 365

AgentPatterns = Annotated[list[Identifier], Field(min_length=1, max_length=256)]
"""Agents that a sidecar's key speaks for, with the wildcards `*` and `?`."""
SidecarPatterns = Annotated[list[Identifier], Field(min_length=1, max_length=256)]
"""Ids of the sidecars that may have a key, with the wildcards `*` and `?`."""


class KeyRequest(RequestModel):
    """Names one key."""

    key_id: Identifier


class NewKey(RequestModel):
    """The key to create (`service.md` 4.5)."""

    example: ClassVar[dict[str, Any]] = {"name": "underwriting agents", "scope": "evaluate"}

    in_header: ClassVar[Mapping[str, str]] = {"idempotency_key": HEADER}

    name: Identifier
    scope: Scope
    expires_days: int | None = Field(DEFAULT_DAYS, ge=1, le=3650)
    bound_agent_id: Identifier | None = None
    permitted_roles: Roles | None = None
    agent_ids: AgentPatterns | None = None
    sidecar_ids: SidecarPatterns | None = None
    idempotency_key: IdempotencyKey | None = None

    @property
    def spoken_for(self) -> tuple[str, ...] | None:
        """The agents that the key speaks for: those given, else the one that it is bound to; None
        if it is no sidecar's. Raises `Invalid` if a sidecar's key would have none."""
        if self.scope != "sidecar":
            given = {"agent_ids": self.agent_ids, "sidecar_ids": self.sidecar_ids}
            if refused := [name for name, value in given.items() if value is not None]:
                raise invalid([f"{name}: only a key of scope `sidecar` has it" for name in refused])
            return None
        if self.agent_ids is not None:
            return tuple(self.agent_ids)
        if self.bound_agent_id is not None:
            return (self.bound_agent_id,)
        raise invalid(
            ['agent_ids: is required for a key of scope `sidecar`; `["*"]` is every agent']
        )

    @property
    def days(self) -> int | None:
        """The key's lifetime in days; None if it never expires."""
        # A sidecar's key expires only if the request says so. Otherwise a fleet would fall silent a
        # year after it was set up.
        defaulted = "expires_days" not in self.model_fields_set
        return None if defaulted and self.scope == "sidecar" else self.expires_days
