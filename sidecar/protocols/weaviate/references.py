"""The collections that a search's arguments name beside the one searched: those on the way of a
filter's `path` through references, and those that beacons point into. Pure.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.protocols.budget import MAX_SOURCES, Budget, OverBudget
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.shared.strict_members import read_members
from sidecar.protocols.weaviate.names import collection, of_beacon

DEEPEST = 64
"""How deep a filter may be nested, and how many references its path may follow."""

# Several names may be aliases of one collection, so this is more than the sources of a request.
MOST_NAMES = 2 * MAX_SOURCES
"""How many collections one value may name."""


class _Role(Enum):
    """What a value stands for in the one around it."""

    ANY = "any"
    PATH = "path"
    """Every other element, from the second on, is a collection."""
    MOVE = "move"
    """Of `moveTo` and `moveAwayFrom`: `objects`, or an object that has them."""
    MOVED = "moved"
    """`objects`: one, or a list."""
    OBJECT = "object"
    """One of them."""


_ROLES = {"path": _Role.PATH, "moveTo": _Role.MOVE, "moveAwayFrom": _Role.MOVE}
_MOVE_ROLES = {**_ROLES, "objects": _Role.MOVED}
_CONTAINERS = frozenset((list, dict))


class _Node(NamedTuple):
    value: Any
    role: _Role
    depth: int


class References:
    """What the arguments of searches refer to, at the charge of `budget`. `shared` are values that
    may stand in any number of places, as variables do: each is walked once, so that the work is
    linear in the size of the request."""

    def __init__(self, budget: Budget, shared: Iterable[Any] = ()) -> None:
        self._budget = budget
        # INVARIANT: the owner of the values keeps them, so that an id stays what it is.
        self._shared = {id(each) for each in shared if isinstance(each, list | dict)}
        self._known: dict[tuple[int, _Role], tuple[str, ...]] = {}

    def of(self, value: Any) -> tuple[str, ...]:
        """The collections that `value` names, each once. Raises `Malformed` and `Unresolved`."""
        return self._walk(value, _Role.ANY)

    def of_path(self, value: Any) -> tuple[str, ...]:
        """The collections on the way of a path."""
        if id(value) in self._shared:
            return self._once(value, _Role.PATH)
        return self._walk(value, _Role.PATH)

    def _walk(self, value: Any, role: _Role) -> tuple[str, ...]:
        found: dict[str, None] = {}
        pending = [_Node(value, role, 0)]
        while pending:
            node = pending.pop()
            if node.depth > DEEPEST:
                raise Malformed("the arguments are nested too deeply")
            if node.depth and id(node.value) in self._shared:
                found.update(dict.fromkeys(self._once(node.value, node.role)))
            else:
                # This charges what `_named` then looks at.
                pending += self._within(node)
                for name in _named(node):
                    found[name] = None
                    if len(found) > MOST_NAMES:
                        raise OverBudget(f"an argument names more than {MOST_NAMES} collections")
        return tuple(found)

    def _within(self, node: _Node) -> list[_Node]:
        """What a value holds that may name more."""
        value, role, depth = node
        if isinstance(value, dict):
            self._budget.charge_arguments(len(value))
            roles = _MOVE_ROLES if role is _Role.MOVE else _ROLES
            given = [(each, roles.get(key, _Role.ANY)) for key, each in value.items()]
        elif isinstance(value, list) and role in (_Role.MOVE, _Role.MOVED):
            self._budget.charge_arguments(len(value))
            given = [(each, _Role.OBJECT) for each in value]
        elif isinstance(value, list) and not _CONTAINERS.isdisjoint(map(type, value)):
            given = [(each, _Role.ANY) for each in value if type(each) in _CONTAINERS]
            self._budget.charge_arguments(len(given))
        else:
            return []
        return [
            _Node(each, inner, depth + 1)
            for each, inner in given
            if inner is not _Role.ANY or type(each) in _CONTAINERS
        ]

    def _once(self, value: Any, role: _Role) -> tuple[str, ...]:
        known = self._known.get((id(value), role))
        if known is None:
            known = self._known[id(value), role] = self._walk(value, role)
        return known


def referred(value: Any, budget: Budget) -> tuple[str, ...]:
    """The collections that one value names."""
    return References(budget).of(value)


def _named(node: _Node) -> Iterator[str]:
    """The collections that a value names by itself. Raises `Unresolved` for a value that may be an
    object of any collection."""
    value, role, _ = node
    if role is _Role.PATH and isinstance(value, list):
        if len(value) > 2 * DEEPEST:
            raise Malformed("a filter's path is too long")
        yield from map(collection, value[1::2])
    if isinstance(value, dict):
        _, beacon, _, _ = read_members(value, "path", "beacon", "moveTo", "moveAwayFrom")
        if beacon is not None:
            yield of_beacon(beacon)
    single = role is _Role.OBJECT or (
        (role is _Role.MOVE and not isinstance(value, list | dict))
        or (role is _Role.MOVED and not isinstance(value, list))
    )
    if single and value is not None and not (isinstance(value, dict) and "beacon" in value):
        # An id alone is looked for in every collection.
        raise Unresolved("an object to move to is named by id alone, not by beacon")
