"""The fields of a policy in a request (`service.md` 2.1). Knows nothing of the store."""

from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from control_api.requests.base import Identifier, RequestModel, json_integer
from control_api.responses.management import PolicyFields
from policies.definitions.model import Sensitivity


def _none_is_empty(value: object) -> object:
    return [] if value is None else value


Names = Annotated[list[Identifier], Field(max_length=1000)]
NullableNames = Annotated[
    Names, BeforeValidator(_none_is_empty, json_schema_input_type=Names | None)
]
"""An empty list is the same as an absent one (contract, section 3)."""


class PolicyRequest(RequestModel):
    """Names one policy."""

    policy_id: Identifier


class PolicyAsked(RequestModel):
    """A complete policy. Fields left out are empty."""

    example: ClassVar[dict[str, Any]] = PolicyFields.example

    name: Identifier
    agent_role: Identifier
    allowed_sources: Names
    denied_sources: NullableNames = Field(default_factory=list)
    max_sensitivity: Sensitivity
    allowed_tasks: NullableNames = Field(default_factory=list)
    denied_tasks: NullableNames = Field(default_factory=list)
    session_ttl_minutes: (
        Annotated[int, Field(ge=1, le=9_999_999), BeforeValidator(json_integer)] | None
    ) = None
    permitted_agent_ids: NullableNames = Field(default_factory=list)
    industry: Identifier | None = None
    process_group: Identifier | None = None

    def body(self) -> dict[str, Any]:
        """Every field of 2.1, as it is stored."""
        # Leave out what subclasses add: `policy_id` and `if_match` belong to the request.
        return self.model_dump(include=set(PolicyAsked.model_fields))


MAX_SET_BODY = 32 * 1024 * 1024
"""The limit on a body with a whole set of policies, in bytes (`policy-tools.md` section 7)."""


def _distinct(policies: list[PolicyAsked]) -> list[PolicyAsked]:
    names = Counter(policy.name for policy in policies)
    twice = [f"`{name}`" for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"several policies have the name {', '.join(twice[:10])}")
    return policies


PolicySet = Annotated[list[PolicyAsked], AfterValidator(_distinct)]
"""All policies of a tenant, as they would be in force together."""
