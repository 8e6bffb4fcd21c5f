"""Reads AuthZEN questions (Authorization API 1.0, section 5): who wants to do what with what. Also
reads several questions in one request (section 7): each is completed by the request's defaults, and
the request says after which answer to stop.

Raises `Malformed`, naming the field, for any other form; null counts as another form. Members that
are not listed here are ignored, at every level. Knows no meaning, and not how a question is
decided.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from policies.ground.errors import Malformed

Properties = Mapping[str, Any]


class Entity(NamedTuple):
    """A subject or a resource of a question."""

    type: str
    id: str
    properties: Properties


class Action(NamedTuple):
    name: str
    properties: Properties


class Question(NamedTuple):
    subject: Entity
    action: Action
    resource: Entity
    context: Properties


_NOTHING: Properties = {}
_ANY_ACTION = Action("", _NOTHING)


def read_question(body: Properties, *, sought: str = "") -> Question:
    """Return the question in a request's body, or in an item of it. `sought` is the member that a
    search asks for, and so leaves out: the id of the subject or resource, or the whole action. The
    result has an empty value there."""
    return Question(
        read_entity(body, "subject", identified=sought != "subject"),
        _ANY_ACTION if sought == "action" else read_action(body),
        read_entity(body, "resource", identified=sought != "resource"),
        read_context(body),
    )


def read_entity(body: Properties, member: str, *, identified: bool = True) -> Entity:
    """Return the subject or resource under `member`. Unless `identified`, its id is ignored, and
    empty in the result."""
    entity = body.get(member)
    if type(entity) is not dict:
        raise _fault(body, member, member, "an object")
    # Every evaluation reads two of these, so the valid form is checked without a call.
    kind, properties = entity.get("type"), entity.get("properties", _NOTHING)
    id_ = entity.get("id") if identified else ""
    if type(kind) is not str:
        raise _fault(entity, "type", f"{member}.type", "a string")
    if type(id_) is not str:
        raise _fault(entity, "id", f"{member}.id", "a string")
    if type(properties) is not dict:
        raise _fault(entity, "properties", f"{member}.properties", "an object")
    return Entity(kind, id_, properties)


def read_action(body: Properties) -> Action:
    action = body.get("action")
    if type(action) is not dict:
        raise _fault(body, "action", "action", "an object")
    name, properties = action.get("name"), action.get("properties", _NOTHING)
    if type(name) is not str:
        raise _fault(action, "name", "action.name", "a string")
    if type(properties) is not dict:
        raise _fault(action, "properties", "action.properties", "an object")
    return Action(name, properties)


def read_context(body: Properties) -> Properties:
    context = body.get("context", _NOTHING)
    if type(context) is not dict:
        raise _fault(body, "context", "context", "an object")
    return context


def _fault(parent: Properties, member: str, name: str, form: str) -> Malformed:
    return Malformed(f"`{name}` " + (f"must be {form}" if member in parent else "is required"))


MAX_ITEMS = 100
_STOP: dict[str, bool | None] = {
    "execute_all": None,
    "deny_on_first_deny": False,
    "permit_on_first_permit": True,
}
_DEFAULTS = ("subject", "action", "resource", "context")


class Evaluations(NamedTuple):
    """The questions of one request, in order. In place of a malformed item stands its error. The
    first answer equal to `stop_on` is the last one given; None means that all are answered."""

    items: list[Question | Malformed]
    stop_on: bool | None


def read_evaluations(body: dict[str, Any]) -> Evaluations | None:
    """Return the questions; None if the request has no items, so that it is a single question
    itself. Raises `Malformed` if the request as a whole has a fault."""
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
