"""Maps resources of AuthZEN questions to sources and their levels, by the rules of
`authzen.resources`, and sources back to the ids of resources. Pure.

Backwards, an id is only proposed. Whether the first rule that matches it leads to the source is for
`ResourceRules.target` to say.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from policies.definitions.model import RANK, SENSITIVITIES, Sensitivity
from policies.definitions.wildcard import is_pattern, matcher
from policies.ground.canonical import identifier_fault
from sidecar.authzen.question import Entity, Properties
from sidecar.settings.authzen import ResourceRule, Scalar
from sidecar.unmapped import Unmapped

PLAIN_TYPE = "source"
"""The type of a resource whose id is a source id."""

_ABSENT = object()
_LEVEL_MEMBERS = ("sensitivity_level", "sensitivity")
_LEVELS = ", ".join(f"`{level}`" for level in SENSITIVITIES)


class Target(NamedTuple):
    """The source and level that policies judge a resource by."""

    source_id: str
    sensitivity: Sensitivity


class _Prepared(NamedTuple):
    """A rule. `source` has the parts of the source id between which the resource's id stands; None
    stands for the default."""

    matches_id: Callable[[str], bool]
    when: Mapping[str, Scalar]
    source: tuple[str, ...] | None
    sensitivity: Sensitivity | None


class ResourceRules:
    """The rules in their order; the first that matches holds."""

    def __init__(self, rules: Iterable[ResourceRule]) -> None:
        self._rules: dict[str, list[_Prepared]] = {}
        for rule in rules:
            source: tuple[str, ...] | None = None
            if rule.source_id is not None:
                # The type is filled in here: an id that contains `{type}` stays as it is.
                source = tuple(rule.source_id.replace("{type}", rule.type).split("{id}"))
            self._rules.setdefault(rule.type, []).append(
                _Prepared(matcher([rule.id]), rule.when, source, rule.sensitivity)
            )

    def target(self, resource: Entity) -> Target:
        """Return the source, and its level. Raises `Unmapped`."""
        kind, id_, properties = resource
        source_id, level = "", None
        for rule in self._rules.get(kind, ()):
            if rule.matches_id(id_) and holds(rule.when, properties):
                # The rule's source id may not contain the resource's id, so this id is checked by
                # itself.
                if fault := identifier_fault(id_):
                    raise Unmapped(f"`resource.id` {fault}")
                level = rule.sensitivity
                source_id = "" if rule.source is None else id_.join(rule.source)
                break
        if not kind or not id_:
            raise Unmapped("`resource.type` and `resource.id` name the source: both are needed")
        if not source_id:
            source_id = id_ if kind == PLAIN_TYPE else f"{kind}://{id_}"
        return Target(source_id, _higher(level, properties))


def holds(when: Mapping[str, Scalar], properties: Properties) -> bool:
    """Return whether the properties have each member of `when`, with the same type and value."""
    for member, wanted in when.items():
        value = properties.get(member, _ABSENT)
        # Python takes `true` for 1; JSON does not.
        if value != wanted or (type(value) is bool) is not (type(wanted) is bool):
            return False
    return True


def _higher(level: Sensitivity | None, properties: Properties) -> Sensitivity:
    """Return the highest of a rule's level and of those that the properties name."""
    for member in _LEVEL_MEMBERS:
        if member in properties:
            stated = properties[member]
            if type(stated) is not str or stated not in RANK:
                raise Unmapped(f"`resource.properties.{member}` must be one of {_LEVELS}")
            # A property raises and never lowers: the policy's author trusts the rule.
            if level is None or RANK[stated] > RANK[level]:
                level = SENSITIVITIES[RANK[stated]]
    # Without a stated level, assume the highest.
    return level or "critical"


_SEPARATOR = "://"


def proposed_ids(source_id: str, kind: str, rules: tuple[ResourceRule, ...]) -> Iterator[str]:
    """Yield ids of resources of the type `kind` that may be the source, some more than once.

    A rule that maps any number of ids to one source (a pattern in `id`, and no `{id}` in
    `source_id`) proposes none: its resources can't be listed.
    """
    for rule in rules:
        if rule.type == kind and rule.source_id is not None:
            parts = rule.source_id.replace("{type}", kind).split("{id}")
            if len(parts) > 1:
                yield from _between(parts, source_id)
            elif parts[0] == source_id and not is_pattern(rule.id):
                yield rule.id
    prefix, separator, rest = source_id.partition(_SEPARATOR)
    if not separator and kind == PLAIN_TYPE:
        yield source_id
    elif separator and prefix == kind:
        yield rest


def _between(parts: list[str], source_id: str) -> Iterator[str]:
    """Yield the text that stands between all neighbouring parts alike, if there is one."""
    length, uneven = divmod(len(source_id) - sum(map(len, parts)), len(parts) - 1)
    begin = len(parts[0])
    found = source_id[begin : begin + length]
    if length > 0 and not uneven and found.join(parts) == source_id:
        yield found
