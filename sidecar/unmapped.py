"""A well-formed question from which no retrieval can be made: what is recorded of it.

Doors read other shapes of the question, and may find that something is missing. That is a denial
like any other, and `Enforcer.deny` records it. Knows no shape.
"""

from policies.ground.json_body import identifier_fault
from policies.retrieval import Retrieval

UNMAPPED = "unmapped_request"
"""The policy name of the denial."""
UNKNOWN = "unknown"
"""Stands for a name that could not be read."""


class Unmapped(ValueError):
    """The message says what is missing, and which setting or field supplies it. The names are those
    that could be read, None for the others."""

    def __init__(
        self,
        reason: str,
        *,
        agent_role: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self._names = (agent_role, user_id, agent_id)

    def retrieval(self, door: str) -> Retrieval:
        """What is recorded, where `door` is the source type of its events."""
        role, user, agent = map(_readable, self._names)
        # The highest level: what could not be read is not known to be harmless.
        return Retrieval(
            role, user, f"{door}://unmapped", "critical", None, None, agent, None, door
        )


def _readable(name: str | None) -> str:
    """`name`, if a record may hold it."""
    return UNKNOWN if name is None or identifier_fault(name) else name
