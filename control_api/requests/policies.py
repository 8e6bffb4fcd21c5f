"""A whole set of policies as a request, for questions about all of it: every policy, or a change of
those in force. Knows nothing of the store."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import orjson
from pydantic import Field, model_validator

from control_api.requests.base import Identifier, RequestModel
from control_api.requests.policy import PolicyAsked, PolicySet
from policies.definitions.model import Sensitivity
from policies.ground.errors import Invalid, invalid

MAX_FAULTS = 100
"""Lines of details."""
MAX_TESTS = 256 * 1024
"""Characters of a file of tests."""


class PolicySetAsked(RequestModel):
    """All policies of a tenant, as they would be in force together. With `keep_others`, only those
    that change: the others are as they are in force."""

    example: ClassVar[dict[str, Any]] = {"policies": [PolicyAsked.example]}
    decoded_later: ClassVar[bool] = True

    policies: PolicySet
    keep_others: bool = Field(
        False,
        description="Whether the policies in force that have other names belong to the set too. "
        "`policies` are then those that are changed or new.",
    )
    without: list[Identifier] = Field(
        default_factory=list,
        description="With `keep_others`: the names of policies in force that the set leaves out.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.without and not self.keep_others:
            raise ValueError("`without` needs `keep_others`: otherwise nothing else is in the set")
        both = {each.name for each in self.policies} & set(self.without)
        if both:
            raise ValueError(f"`{min(both)}` is in `policies` and in `without`")
        return self

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """The validated set. Raises `Invalid`; each line of its details says which policy."""
        try:
            return super().read(values)
        except Invalid as refusal:
            lines = (refusal.details or "").splitlines()
            more = [f"and {len(lines) - MAX_FAULTS} more"] if len(lines) > MAX_FAULTS else []
            raise invalid([*lines[:MAX_FAULTS], *more], "request") from None

    def bodies(self, in_force: bytes) -> list[dict[str, Any]]:
        """All policies of the set, as they are stored. `in_force` is the JSON array of the
        documents of all roles."""
        asked = [each.body() for each in self.policies]
        if not self.keep_others:
            return asked
        gone = {*self.without, *(each["name"] for each in asked)}
        return [*(each for each in _stored(in_force) if each["name"] not in gone), *asked]


def _stored(in_force: bytes) -> Iterable[dict[str, Any]]:
    for document in orjson.loads(in_force):
        for wire in document:
            # What a decision cites of a policy is not part of its body.
            yield {key: value for key, value in wire.items() if key not in CITED}


CITED = frozenset({"policy_id", "version"})
"""Members of a policy in a role's document that the store adds."""


class ComparedPolicies(PolicySetAsked):
    """A set of policies, and what it is compared with."""

    example: ClassVar[dict[str, Any]] = {"policies": [PolicyAsked.example]}

    against: PolicySet | None = Field(
        None, description="Policies to compare with, in place of all those in force."
    )


class TriedRetrieval(RequestModel):
    """What a decision depends on, of the body of an evaluation."""

    agent_role: Identifier
    source_id: Identifier
    sensitivity_level: Sensitivity
    user_id: Identifier = "example-user"
    task_type: Identifier | None = None
    agent_id: Identifier | None = None


class ReviewedPolicies(PolicySetAsked):
    """A set of policies, and what to try on it."""

    example: ClassVar[dict[str, Any]] = {
        "policies": [PolicyAsked.example],
        "keep_others": True,
        "tests": "tests:\n  - name: contracts can be read\n    ask: {agent_role: loan_underwriter, "
        "source_id: contracts, sensitivity_level: low}\n    expect: {decision: ALLOW}\n",
    }

    tests: str | None = Field(
        None,
        max_length=MAX_TESTS,
        description="A file of tests in YAML, to be decided by the set.",
    )
    ask: TriedRetrieval | None = Field(
        None,
        description="A request to be decided by the set, and explained. Its agent counts as "
        "approved, and the key as unbound.",
    )
