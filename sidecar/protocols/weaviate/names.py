"""Names of collections and tenants in paths, queries and JSON bodies. Pure.

Weaviate capitalizes the first letter of every collection's name. It reads JSON with Go's lenient
reader, which takes `Class` for `class`: see `shared/strict_members.py`.
"""

import re
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.shared.strict_members import read_members
from sidecar.protocols.strict_body import json_object

_CLASS = re.compile(r"[A-Za-z][_0-9A-Za-z]{0,254}\Z")
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_BEACON = re.compile(r"weaviate://localhost/([A-Za-z][_0-9A-Za-z]*)/[0-9A-Fa-f-]{32,36}(?:/\w+)?\Z")


class CollectionName(NamedTuple):
    """A collection as a request names it, which may be an alias, and the tenant, if any."""

    collection: str
    tenant: str | None = None


def parse_collection(name: object) -> str:
    """A collection's name as Weaviate reads it. Raises `Unresolved`."""
    if not isinstance(name, str) or not _CLASS.match(name):
        raise Unresolved("a collection's name must have the form [A-Za-z][_0-9A-Za-z]*")
    return name[0].upper() + name[1:]


def parse_tenant(name: object) -> str | None:
    """A tenant's name; None if it is absent. Raises `Unresolved`."""
    # Weaviate takes an empty name for an absent one.
    if name is None or name == "":
        return None
    if not isinstance(name, str) or not _TENANT.match(name):
        raise Unresolved("a tenant's name must have the form [A-Za-z0-9_-]{1,64}")
    return name


def object_collection(body: Any, default: str | None = None) -> CollectionName:
    """The collection and tenant of an object in a body. `default` is the collection that the path
    names, for an object that names none."""
    if not isinstance(body, dict):
        raise Malformed("the body has something else where an object is expected")
    name, tenant = read_members(body, "class", "tenant")
    return CollectionName(parse_collection(default if name is None else name), parse_tenant(tenant))


def beacon_collection(text: object) -> str:
    """The collection that a beacon points into. Raises `Unresolved`."""
    found = _BEACON.match(text) if isinstance(text, str) else None
    if found is None:
        raise Unresolved("a beacon must have the form weaviate://localhost/<collection>/<id>")
    return parse_collection(found[1])


def json_array(raw: bytes, media_type: str | None, budget: Budget) -> list[dict[str, Any]]:
    """A body that is one JSON array of objects, with no key twice. Each object is a sub-request."""
    # Wrapped in an object, so that `json_object` checks it for duplicate keys. If the body adds
    # members to that object (`[], "x": 1`), it has more than one.
    wrapped = json_object(b'{"":' + raw + b"}", media_type)
    found = wrapped.get("")
    if len(wrapped) != 1 or not isinstance(found, list):
        raise Malformed("the body is not a JSON array")
    budget.charge_parts(len(found))
    if not all(isinstance(each, dict) for each in found):
        raise Malformed("the body's array has elements that are not objects")
    return found
