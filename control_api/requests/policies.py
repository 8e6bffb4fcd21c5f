"""A whole set of policies as a request, for questions about all of it. Knows nothing of the
store."""

from typing import Any, ClassVar

from control_api.requests.base import RequestModel
from control_api.requests.policy import PolicyAsked, PolicySet
from policies.ground.errors import Invalid, invalid

MAX_FAULTS = 100
"""Lines of details."""


class PolicySetAsked(RequestModel):
    """All policies of a tenant, as they would be in force together."""

    example: ClassVar[dict[str, Any]] = {"policies": [PolicyAsked.example]}
    decoded_later: ClassVar[bool] = True

    policies: PolicySet

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """The validated set. Raises `Invalid`; each line of its details says which policy."""
        try:
            return super().read(values)
        except Invalid as refusal:
            lines = (refusal.details or "").splitlines()
            more = [f"and {len(lines) - MAX_FAULTS} more"] if len(lines) > MAX_FAULTS else []
            raise invalid([*lines[:MAX_FAULTS], *more], "request") from None

    def bodies(self) -> list[dict[str, Any]]:
        """The policies as they are stored."""
        return [each.body() for each in self.policies]
