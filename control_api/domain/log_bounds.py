"""The bounds of a part of the log, from the form that requests name them in."""

from control_api.log.export.place import Moment
from policies.ground.canonical import micros


def bound(place: str | None) -> int | Moment | None:
    """The bound that a `control_api.requests.log_place.Place` names; None is the log's own."""
    if place is None:
        return None
    return int(place) if place.isdecimal() else Moment(micros(place))
