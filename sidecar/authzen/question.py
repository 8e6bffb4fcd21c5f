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
_ABSENT = object()


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
    entity = _object(body, member, member)
    return Entity(
        _text(entity, "type", member),
        _text(entity, "id", member) if identified else "",
        _properties(entity, member),
    )


def read_action(body: Properties) -> Action:
    action = _object(body, "action", "action")
    return Action(_text(action, "name", "action"), _properties(action, "action"))


def read_context(body: Properties) -> Properties:
    return _object(body, "context", "context") if "context" in body else _NOTHING


def _properties(entity: Properties, within: str) -> Properties:
    if "properties" not in entity:
        return _NOTHING
    return _object(entity, "properties", f"{within}.properties")


def _object(parent: Properties, member: str, name: str) -> Properties:
    value = parent.get(member, _ABSENT)
    if type(value) is dict:
        return value
    raise Malformed(f"`{name}` " + ("is required" if value is _ABSENT else "must be an object"))


def _text(parent: Properties, member: str, within: str) -> str:
    value = parent.get(member, _ABSENT)
    if type(value) is str:
        return value
    fault = "is required" if value is _ABSENT else "must be a string"
    raise Malformed(f"`{within}.{member}` {fault}")
