"""Reads the names of collections and tenants in paths, queries and JSON bodies. Finds the
collections to which a search's arguments refer (a filter's `path` crosses into other collections,
and beacons point to objects in them), and filters lists of collections.

Weaviate capitalizes the first letter of every collection's name. It parses JSON with Go's lenient
parser, which takes `Class` for `class`: see `shared/strict_queries.py`.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.protocols.protocol import FetchedResponse, ForwardedPart, Unresolved, Visibility
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    expect_text,
    response_json,
    response_object,
    to_json,
)
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.protocols.shared.strict_queries import read_members
from sidecar.protocols.strict_body import MAX_SOURCES, Budget, OverBudget, json_object

_CLASS = re.compile(r"[A-Za-z][_0-9A-Za-z]{0,254}\Z")
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_BEACON = re.compile(r"weaviate://localhost/([A-Za-z][_0-9A-Za-z]*)/[0-9A-Fa-f-]{32,36}(?:/\w+)?\Z")


class CollectionName(NamedTuple):
    """A collection as a request names it, which may be by an alias, and the tenant, None if the
    request names none."""

    collection: str
    tenant: str | None = None


def parse_collection(name: object) -> str:
    """Return the name of a collection as Weaviate reads it, with a capital first letter. Raises
    `Unresolved` if it is not a name."""
    if not isinstance(name, str) or not _CLASS.match(name):
        raise Unresolved("a collection's name must have the form [A-Za-z][_0-9A-Za-z]*")
    return name[0].upper() + name[1:]


def parse_tenant(name: object) -> str | None:
    """Return the name of a tenant; None if it is absent or empty. Raises `Unresolved` if it is not
    a name."""
    # Weaviate takes an empty name for an absent one.
    if name is None or name == "":
        return None
    if not isinstance(name, str) or not _TENANT.match(name):
        raise Unresolved("a tenant's name must have the form [A-Za-z0-9_-]{1,64}")
    return name


def object_collection(body: Any, default: str | None = None) -> CollectionName:
    """Return the collection and tenant of an object in a body. `default` is the collection that the
    path names, used for an object that names no collection."""
    if not isinstance(body, dict):
        raise Malformed("the body has something else where an object is expected")
    name, tenant = read_members(body, "class", "tenant")
    return CollectionName(parse_collection(default if name is None else name), parse_tenant(tenant))


def beacon_collection(text: object) -> str:
    """Return the collection into which a beacon (a reference to an object, as a URI) points. Raises
    `Unresolved`."""
    found = _BEACON.match(text) if isinstance(text, str) else None
    if found is None:
        raise Unresolved("a beacon must have the form weaviate://localhost/<collection>/<id>")
    return parse_collection(found[1])


def json_array(raw: bytes, media_type: str | None, budget: Budget) -> list[dict[str, Any]]:
    """Return the objects in a body that is one JSON array, with no key twice. Each object is
    charged as a sub-request. Raises `Malformed`."""
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


MAX_DEPTH = 64
"""The most levels to which arguments may be nested, and the most references that a filter's path
may follow."""

MAX_NAMES = 2 * MAX_SOURCES
"""The most collections that one value may name: more than a request may have sources, since several
names may be aliases of one collection."""


class _Role(Enum):
    ANY = "any"
    PATH = "path"
    """The value of `path`, in which every other element, from the second on, names a collection."""
    MOVE = "move"
    """The value of `moveTo` or `moveAwayFrom`, which has a member `objects`."""
    MOVE_OBJECTS = "move objects"
    """The value of `objects` within `moveTo` or `moveAwayFrom`: one object, or a list."""
    MOVE_OBJECT = "move object"


_ROLES = {"path": _Role.PATH, "moveTo": _Role.MOVE, "moveAwayFrom": _Role.MOVE}
_MOVE_ROLES = {**_ROLES, "objects": _Role.MOVE_OBJECTS}
_CONTAINERS = frozenset((list, dict))


class _Node(NamedTuple):
    value: Any
    role: _Role
    depth: int


class References:
    """Finds the collections to which the arguments of searches refer, and charges `budget` for the
    work. `shared` are values that may occur in many places, as variables do; each is walked only
    once."""

    def __init__(self, budget: Budget, shared: Iterable[Any] = ()) -> None:
        self._budget = budget
        # A large variable in each of many searches would multiply the work, so each shared value is
        # walked once per role: the work is linear in the size of the request.
        # INVARIANT: the caller keeps the shared values alive, so their ids stay theirs.
        self._shared = {id(each) for each in shared if isinstance(each, list | dict)}
        self._known: dict[tuple[int, _Role], tuple[str, ...]] = {}

    def in_arguments(self, value: Any) -> tuple[str, ...]:
        """Return the collections that `value` names, each once. Raises `Malformed` and
        `Unresolved`."""
        return self._walk(value, _Role.ANY)

    def in_path(self, value: Any) -> tuple[str, ...]:
        if id(value) in self._shared:
            return self._walk_once(value, _Role.PATH)
        return self._walk(value, _Role.PATH)

    def _walk(self, value: Any, role: _Role) -> tuple[str, ...]:
        found: dict[str, None] = {}
        pending = [_Node(value, role, 0)]
        while pending:
            node = pending.pop()
            if node.depth > MAX_DEPTH:
                deep = f"more than {MAX_DEPTH} levels"
                raise Malformed(f"the arguments are nested too deeply: {deep}")
            # Not at depth 0: there, `_walk_once` passes in the shared value itself.
            if node.depth and id(node.value) in self._shared:
                found.update(dict.fromkeys(self._walk_once(node.value, node.role)))
            else:
                # `_children` charges the budget, so it comes before `_own_names` reads the node.
                pending += self._children(node)
                for name in _own_names(node):
                    found[name] = None
                    if len(found) > MAX_NAMES:
                        raise OverBudget(f"an argument names more than {MAX_NAMES} collections")
        return tuple(found)

    def _children(self, node: _Node) -> list[_Node]:
        value, role, depth = node
        if isinstance(value, dict):
            self._budget.charge_arguments(len(value))
            roles = _MOVE_ROLES if role is _Role.MOVE else _ROLES
            given = [(each, roles.get(key, _Role.ANY)) for key, each in value.items()]
        elif isinstance(value, list) and role in (_Role.MOVE, _Role.MOVE_OBJECTS):
            self._budget.charge_arguments(len(value))
            given = [(each, _Role.MOVE_OBJECT) for each in value]
        elif isinstance(value, list) and not _CONTAINERS.isdisjoint(map(type, value)):
            # A vector's numbers name nothing, and there may be thousands of them.
            given = [(each, _Role.ANY) for each in value if type(each) in _CONTAINERS]
            self._budget.charge_arguments(len(given))
        else:
            return []
        naming = (e for e in given if e[1] is not _Role.ANY or type(e[0]) in _CONTAINERS)
        return [_Node(each, inner, depth + 1) for each, inner in naming]

    def _walk_once(self, value: Any, role: _Role) -> tuple[str, ...]:
        if (id(value), role) not in self._known:
            self._known[id(value), role] = self._walk(value, role)
        return self._known[id(value), role]


def references_in(value: Any, budget: Budget) -> tuple[str, ...]:
    return References(budget).in_arguments(value)


def _own_names(node: _Node) -> Iterator[str]:
    """Yield the collections that one value names itself, not those named deeper within it. Raises
    `Unresolved` for a value that may be an object in any collection."""
    value, role, _ = node
    if role is _Role.PATH and isinstance(value, list):
        # `["inLibrary", "Library", "name"]`: a reference, the collection it leads to, a property.
        if len(value) > 2 * MAX_DEPTH:
            raise Malformed(f"a filter's path is too long: more than {2 * MAX_DEPTH} elements")
        yield from map(parse_collection, value[1::2])
    if isinstance(value, dict):
        # The other three are named only so that `read_members` refuses other spellings of them,
        # which `_children` would not recognise.
        _, beacon, _, _ = read_members(value, "path", "beacon", "moveTo", "moveAwayFrom")
        if beacon is not None:
            yield beacon_collection(beacon)
    single = role is _Role.MOVE_OBJECT or (
        (role is _Role.MOVE and not isinstance(value, list | dict))
        or (role is _Role.MOVE_OBJECTS and not isinstance(value, list))
    )
    if single and value is not None and not (isinstance(value, dict) and "beacon" in value):
        # Weaviate looks for an id in every collection.
        raise Unresolved("an object to move to or away from has only an id: give its beacon")


ResponseFilter = Callable[[FetchedResponse], ForwardedPart]


def parse_aliases(body: Any) -> dict[str, str]:
    """Return a mapping from alias to collection, from the response to `GET /v1/aliases`. Raises
    `UpstreamFailed`."""
    found = expect_object(body, "list of aliases").get("aliases")
    elements = expect_list(found or [], "list of aliases")
    return {expect_text(each, "alias"): expect_text(each, "class") for each in elements}


class CollectionDefinition(NamedTuple):
    name: str
    """The collection's own name."""
    references: dict[str, tuple[str, ...]]
    """The collections to which each property leads, by the property's name: none if it holds
    values."""


def parse_definition(body: Any) -> CollectionDefinition:
    """Return a collection's definition from the response to `GET /v1/schema/<name>`. Raises
    `UpstreamFailed`."""
    found = expect_object(body, "definition of a collection")
    references = {}
    for each in expect_list(found.get("properties") or [], "list of properties"):
        name = expect_text(each, "name")
        types = expect_list(each.get("dataType"), "list of a property's types")
        # The types of values begin with a lower-case letter, and collections with a capital.
        references[name] = tuple(t for t in types if isinstance(t, str) and t[:1].isupper())
    return CollectionDefinition(expect_text(found, "class"), references)


def collection_filter(
    member: str, source_names: SourceNames, visibility: Visibility
) -> ResponseFilter:
    """Return a function that filters the list in `member` by the collection that each element names
    in `class`."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        found = expect_list(whole.get(member) or [], "list")
        sources = [source_names.of(expect_text(each, "class")) for each in found]
        pairs = zip(found, sources, strict=True)
        visible = [each for each, source in pairs if visibility.permits(source)]
        # A list without a hidden element passes as Weaviate wrote it, byte for byte.
        if len(visible) == len(found):
            return ForwardedPart(response.body)
        return ForwardedPart(to_json({**whole, member: visible}))

    return filter_response


def tenant_filter(
    collection: str, source_names: SourceNames, visibility: Visibility
) -> ResponseFilter:
    def filter_response(response: FetchedResponse) -> ForwardedPart:
        found = expect_list(response_json(response), "list of tenants")
        sources = [source_names.of(collection, expect_text(each, "name")) for each in found]
        pairs = zip(found, sources, strict=True)
        visible = [each for each, source in pairs if visibility.permits(source)]
        return ForwardedPart(response.body if len(visible) == len(found) else to_json(visible))

    return filter_response


def node_filter(source_names: SourceNames, visibility: Visibility) -> ResponseFilter:
    def may_see(shard: Any) -> bool:
        # The shard of a tenant has the tenant's name. Nothing in a shard says whether its
        # collection has tenants, so both must be visible.
        names = expect_text(shard, "class"), expect_text(shard, "name")
        return all(visibility.permits(source_names.of(*names[:count])) for count in (1, 2))

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        for node in expect_list(whole.get("nodes"), "list of nodes"):
            # The totals count hidden shards too.
            expect_object(node, "node").pop("stats", None)
            shards = expect_list(node.get("shards") or [], "list of shards")
            node["shards"] = [each for each in shards if may_see(each)]
        return ForwardedPart(to_json(whole))

    return filter_response


def object_filter(levels: DocumentLevels) -> ResponseFilter:
    """Return a function that filters the objects of a response `{"objects": [{"properties"}],
    "totalResults"}` by their levels."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        found = expect_list(whole.get("objects"), "list of objects")
        own = [expect_object(each, "object").get("properties") for each in found]
        pairs = zip(found, own, strict=True)
        visible = [each for each, properties in pairs if levels.may_see(properties)]
        if len(visible) == len(found):
            return ForwardedPart(response.body)
        whole["objects"] = visible
        # The total would reveal how many objects were withheld.
        if "totalResults" in whole:
            whole["totalResults"] = len(visible)
        return ForwardedPart(to_json(whole), len(found) - len(visible))

    return filter_response
