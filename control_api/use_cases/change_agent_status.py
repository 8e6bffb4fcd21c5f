"""Move an agent along the chain of its states (`service.md` 3.1, contract section 4)."""

from types import MappingProxyType

from control_api.asked import Asked, Identifier
from control_api.shapes import Status
from policies.ground.errors import Conflict

# One step forward; sent back for a correction; and the kill switch from every state. The same state
# again is a no-op. Anything else is refused, with the moves that are open.
MOVES = MappingProxyType(
    {
        "draft": ("pending_approval", "deprecated"),
        "pending_approval": ("approved", "draft", "deprecated"),
        "approved": ("deprecated",),
        "deprecated": (),
    }
)
