"""Which source a resource of an AuthZEN question is, and how sensitive, by the rules of
`authzen.resources`. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from policies.definitions.model import RANK, SENSITIVITIES, Sensitivity
from policies.definitions.wildcard import matcher
from policies.ground.json_body import identifier_fault
from sidecar.authzen.question import Entity, Properties
from sidecar.settings.authzen import ResourceRule, Scalar
from sidecar.unmapped import Unmapped

PLAIN_TYPE = "source"
"""The type of a resource whose id is a source id."""

_ABSENT = object()
_LEVEL_MEMBERS = ("sensitivity_level", "sensitivity")
_LEVELS = ", ".join(f"`{level}`" for level in SENSITIVITIES)


class Target(NamedTuple):
    """What a resource is to a policy."""

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
        """The source, and its level. Raises `Unmapped`."""
        kind, id_, properties = resource
        source_id, level = "", None
        for rule in self._rules.get(kind, ()):
            if rule.matches_id(id_) and holds(rule.when, properties):
                # The rule's source id may be without it.
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
    """Whether the properties have each member, with the same type and value."""
    for member, wanted in when.items():
        value = properties.get(member, _ABSENT)
        # Python takes `true` for 1; JSON does not.
        if value != wanted or (type(value) is bool) is not (type(wanted) is bool):
            return False
    return True


def _higher(level: Sensitivity | None, properties: Properties) -> Sensitivity:
    """The highest of a rule's level and of those that the properties name."""
    for member in _LEVEL_MEMBERS:
        if member in properties:
            stated = properties[member]
            if type(stated) is not str or stated not in RANK:
                raise Unmapped(f"`resource.properties.{member}` must be one of {_LEVELS}")
            # A property raises and never lowers: the policy's author trusts the rule.
            if level is None or RANK[stated] > RANK[level]:
                level = SENSITIVITIES[RANK[stated]]
    # What is not known to be harmless counts as harmful.
    return level or "critical"
