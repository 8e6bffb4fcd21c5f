"""What the spool takes at the moment, in a word. Knows no reasons."""

from enum import StrEnum

from sidecar.spool.frames import FRAME, MAX_PAYLOAD
from sidecar.spool.instance_rotation import InstanceRotation


class State(StrEnum):
    """`denials_only`: the reserve is all that is left; `full`: not even that."""

    OPEN = "open"
    DENIALS_ONLY = "denials_only"
    FULL = "full"
    UNWRITABLE = "unwritable"


def state_of(succession: InstanceRotation) -> State:
    """As the next record of the largest size would find it."""
    tail = succession.tail
    if succession.refusal is not None:
        return State.UNWRITABLE
    if tail.spares or tail.room > tail.reserve:
        return State.OPEN
    return State.DENIALS_ONLY if tail.room > FRAME + MAX_PAYLOAD else State.FULL
