"""A request that holds several questions (AuthZEN Authorization API 1.0, section 7): its items,
completed by the defaults, and which answer is the last. Knows nothing of how one is decided."""

from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.authzen.question import (
    Properties,
    Question,
    read_action,
    read_context,
    read_entity,
    read_question,
)

MAX_ITEMS = 100
_STOP: dict[str, bool | None] = {
    "execute_all": None,
    "deny_on_first_deny": False,
    "permit_on_first_permit": True,
}
_DEFAULTS = ("subject", "action", "resource", "context")


class Evaluations(NamedTuple):
    """The questions in order; an item that has another form is the fault. The first answer that
    equals `stop_on` is the last; None answers all."""

    items: list[Question | Malformed]
    stop_on: bool | None


def read_evaluations(body: dict[str, Any]) -> Evaluations | None:
    """The questions; None if the request has no items, and so is a single question itself. Raises
    `Malformed` for a fault of the request as a whole."""
    items = body.get("evaluations", [])
    if type(items) is not list:
        raise Malformed("`evaluations` must be an array")
    if len(items) > MAX_ITEMS:
        raise Malformed(f"`evaluations` has {len(items)} items; the limit is {MAX_ITEMS}")
    stop_on = _stop_on(body)
    if not items:
        return None
    _refuse_bad_defaults(body)
    defaults = {member: body[member] for member in _DEFAULTS if member in body}
    return Evaluations([_item(defaults, each) for each in items], stop_on)


def _stop_on(body: dict[str, Any]) -> bool | None:
    options = body.get("options", {})
    if type(options) is not dict:
        raise Malformed("`options` must be an object")
    semantic = options.get("evaluations_semantic", "execute_all")
    if type(semantic) is not str or semantic not in _STOP:
        raise Malformed(f"`options.evaluations_semantic` must be one of {', '.join(_STOP)}")
    return _STOP[semantic]


def _refuse_bad_defaults(body: dict[str, Any]) -> None:
    for member in ("subject", "resource"):
        if member in body:
            read_entity(body, member)
    if "action" in body:
        read_action(body)
    read_context(body)


def _item(defaults: Properties, item: object) -> Question | Malformed:
    # An item's member replaces the default whole: nothing is merged below the first level.
    if type(item) is not dict:
        return Malformed("the item must be an object")
    try:
        return read_question({**defaults, **item})
    except Malformed as fault:
        return fault.with_traceback(None)  # a traceback would hold the request
