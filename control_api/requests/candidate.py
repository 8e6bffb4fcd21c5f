"""A candidate's name and policies in a request. Knows nothing of the store."""

import re
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError

from control_api.requests.base import RequestModel, complaints
from control_api.requests.policy import PolicyAsked, PolicySet
from policies.ground.errors import invalid
from policies.ground.json_body import identifier_fault

# No `/`: the name is part of documents' names (`policies.sets.policy_set.candidate_name`).
CandidateName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,63}$", examples=["tomorrow"])]
_PLACE = re.compile(r"policies\.([0-9]{1,6})(?=[.:])")


class CandidateRequest(RequestModel):
    """Names one candidate."""

    name: CandidateName


class CandidatePolicies(RequestModel):
    """The candidate's whole policy set."""

    example: ClassVar[dict[str, Any]] = {"policies": [PolicyAsked.example]}

    name: CandidateName
    policies: PolicySet

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """The validated request. A complaint about a policy names it: its place in a list of
        thousands says little."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            named = [_named(line, values.get("policies")) for line in complaints(error)]
            raise invalid(named, "request") from None


def _named(complaint: str, policies: Any) -> str:
    place = _PLACE.match(complaint)
    if place is None:
        return complaint
    policy = policies[int(place[1])]
    name = policy.get("name") if isinstance(policy, dict) else None
    if not isinstance(name, str) or identifier_fault(name):
        return complaint
    return f"{place[0]} (`{name}`){complaint[place.end() :]}"
