"""What Weaviate's requests call collections and tenants, in paths, queries and JSON bodies. Pure.

Weaviate writes a collection's first letter large whatever the request has. Its reader of JSON is
Go's: beside `class`, it would read a `Class` too (`lenient.py`).
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


def collection(name: object) -> str:
    """A collection's name as Weaviate takes it."""
    if not isinstance(name, str) or not _CLASS.match(name):
        raise Unresolved("a collection's name has the form [A-Za-z][_0-9A-Za-z]*")
    return name[0].upper() + name[1:]


def tenant(name: object) -> str | None:
    """A tenant's name; none where it is absent or empty, as for Weaviate."""
    if name is None or name == "":
        return None
    if not isinstance(name, str) or not _TENANT.match(name):
        raise Unresolved("a tenant's name has the form [A-Za-z0-9_-]{1,64}")
    return name


def named(body: Any, within: str | None = None) -> CollectionName:
    """The collection and tenant of an object in a body; `within` where another part of the request
    says the collection."""
    if not isinstance(body, dict):
        raise Malformed("the body holds something else where an object is meant")
    of, whose = read_members(body, "class", "tenant")
    if of is None and within is not None:
        of = within
    return CollectionName(collection(of), tenant(whose))


def of_beacon(text: object) -> str:
    """The collection that a beacon points into."""
    found = _BEACON.match(text) if isinstance(text, str) else None
    if found is None:
        raise Unresolved("a beacon has the form weaviate://localhost/<collection>/<id>")
    return collection(found[1])


def json_array(raw: bytes, media: str | None, budget: Budget) -> list[dict[str, Any]]:
    """A body that is one JSON array of objects, no key twice. Each is a sub-request."""
    # As a member of an object, for the one reader that looks for keys which stand twice.
    whole = json_object(b'{"":' + raw + b"}", media)
    found = whole.get("")
    if len(whole) != 1 or not isinstance(found, list):
        raise Malformed("the body is not a JSON array")
    budget.charge_parts(len(found))
    if not all(isinstance(each, dict) for each in found):
        raise Malformed("the body's array holds something else than objects")
    return found
