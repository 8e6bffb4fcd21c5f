"""Builds the patterns of a decision's members from the table of fields, for the readers that know a
decision by its bytes: `record_fast_path` as a sidecar sends it, `walk.known_lines` as a log has it.

The members beside `pub` are a closed list (`stored_entry`), so each reader writes those itself.
"""

from collections.abc import Mapping

from policies.definitions.model import MAX_CANDIDATES
from policies.trail.fields import Field, Type, members

Values = Mapping[str, bytes]
"""The pattern of a value by its path, or by its type."""


def known_members(parent: str, values: Values) -> dict[str, bytes]:
    """The pattern of each member of the object at `parent`, with its comma, by name: joined, they
    match what is between the object's braces. At least one member must not be optional."""
    found: dict[str, bytes] = {}
    before, after = b"", b","
    for field in members(parent):
        member = b'"%b":%b' % (field.name.encode(), _value(field, values))
        # `(?:x|)` takes half the time of `(?:x)?`.
        optional = rb"(?:%b|)" % (before + member + after)
        found[field.name] = optional if field.optional else before + member
        # The comma of an optional member is behind it until there is one that is never absent.
        if not field.optional:
            before, after = b",", b""
    return found


def known_object(parent: str, values: Values) -> bytes:
    """The pattern of the object at `parent`."""
    return rb"\{%b\}" % b"".join(known_members(parent, values).values())


def _value(field: Field, values: Values) -> bytes:
    known = values.get(field.path) or values.get(field.type)
    if known is not None:
        return known
    if field.type is Type.ITEMS:
        item = known_object(f"{field.path}[]", values)
        return rb"\[%b(?:,%b){0,%d}\]" % (item, item, MAX_CANDIDATES - 1)
    return known_object(field.path, values)
