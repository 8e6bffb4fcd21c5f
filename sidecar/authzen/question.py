"""The form of an AuthZEN question (Authorization API 1.0, section 5): who wants to do what with
what. Raises `Malformed`, naming the field, for another form. Knows no meaning.

Members that are not listed here are ignored, at every level. Null is another form.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from policies.ground.errors import Malformed

Properties = Mapping[str, Any]


class Entity(NamedTuple):
    """A subject or a resource."""

    type: str
    id: str
    properties: Properties


class Action(NamedTuple):
    """What the subject wants to do."""

    name: str
    properties: Properties


class Question(NamedTuple):
    """One evaluation's request."""

    subject: Entity
    action: Action
    resource: Entity
    context: Properties


_NOTHING: Properties = {}


def read_question(body: Properties) -> Question:
    """The question in a request's body, or in an item of it."""
    return Question(
        read_entity(body, "subject"),
        read_action(body),
        read_entity(body, "resource"),
        read_context(body),
    )


def read_entity(body: Properties, member: str, *, identified: bool = True) -> Entity:
    """The subject or resource. Unless `identified`, its id is ignored, and empty here."""
    entity = body.get(member)
    if type(entity) is not dict:
        raise _fault(body, member, member, "an object")
    # Every evaluation reads two of these, so what is right is looked at once, without a call.
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
