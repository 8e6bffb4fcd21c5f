"""Maps an AuthZEN question to a retrieval, or to the reason why that is impossible. The members of
the retrieval come from these places, in this order:

    agent_id           subject.id of an agent, context, subject.properties, the key's
    agent_role         subject.properties, context, the agent's, the key's
    user_id            context, subject.properties, subject.id
    source_id, level   the first rule of `authzen.resources` that matches
    task_type          the first rule of `authzen.actions` that matches; without one, unmapped

The first place that has a value counts, even if the value can't be used: taking the next one
instead would decide for somebody else.

Also maps a source back to ids of resources that may stand for it. These are only proposals:
`ResourceRules.target` says whether the first rule that matches an id leads to the source. Pure.
Each step can be used alone, so that a search maps what its candidates share only once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from policies.definitions.model import RANK, SENSITIVITIES, Key, Sensitivity
from policies.definitions.wildcard import is_pattern, matcher
from policies.ground.canonical import identifier_fault
from policies.retrieval import Retrieval, complaints
from policies.sets.policy_set import PolicySet
from sidecar.authzen.question import Action, Entity, Properties, Question
from sidecar.settings.sections import AuthzenSettings, ResourceRule, Scalar
from sidecar.unmapped import Unmapped, agent_of, role_of

DOOR = "authzen"
"""The source type of all retrievals that come through AuthZEN."""

_TAKEN_FROM = {
    "agent_role": "`subject.properties` (`agent_role`, or what `authzen.role_property` names) or "
    "from `context.agent_role`",
    "user_id": "`user_id` in `context` or `subject.properties`, else from `subject.id`",
    "source_id": "the rule in `authzen.resources`, else from `resource.type` and `resource.id`",
    "session_id": "`context.session_id`",
    "task_type": "`task_type` in `context` or `action.properties`",
    "agent_id": "`subject.id` of the types in `authzen.subject_types`, else from `agent_id` or "
    "`agent` in `context`, or `subject.properties.agent_id`",
    "query": "`context.query`",
    "context_hash": "`context.context_hash`",
}


PLAIN_TYPE = "source"
"""The type of a resource whose id is itself a source id."""

_ABSENT = object()
_LEVEL_MEMBERS = ("sensitivity_level", "sensitivity")
_LEVELS = ", ".join(f"`{level}`" for level in SENSITIVITIES)


class Target(NamedTuple):
    """The source and the sensitivity level by which policies judge a resource."""

    source_id: str
    sensitivity: Sensitivity


class _Prepared(NamedTuple):
    """A rule of `authzen.resources`, prepared for matching. `source` has the parts of the source id
    between which the resource's id is inserted; None stands for the default."""

    matches_id: Callable[[str], bool]
    when: Mapping[str, Scalar]
    source: tuple[str, ...] | None
    sensitivity: Sensitivity | None


class ResourceRules:
    """The rules of `authzen.resources`, in order. The first rule that matches a resource
    applies."""

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
        """Return the source that the resource stands for, and its level. Raises `Unmapped`."""
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
    """Return the highest of a rule's level and the levels that the properties name."""
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


class Mapper:
    """Maps questions to retrievals by the operator's settings. Each method raises `Unmapped` with a
    message that names the setting or the field to add. `speaks_for` returns whether the sidecar's
    own key speaks for an agent."""

    def __init__(
        self,
        settings: AuthzenSettings,
        speaks_for: Callable[[str | None], bool] = lambda _: True,
    ) -> None:
        self.settings = settings
        self._speaks_for = speaks_for
        self._role_property = settings.role_property
        self._subject_types = frozenset(settings.subject_types)
        self._resources = ResourceRules(settings.resources)
        self._actions: dict[str, list[tuple[Mapping[str, Scalar], str | None]]] = {}
        for action in settings.actions:
            self._actions.setdefault(action.name, []).append((action.when, action.task))

    def retrieval(self, question: Question, key: Key, policy_set: PolicySet) -> Retrieval:
        """Return the retrieval that the question stands for. Raises `MissingDocument` if the
        question names no role and the agent's document is not here yet."""
        subject, action, resource, context = question
        get = context.get
        try:
            agent_id = self.agent_id(subject, context, key)
            source_id, sensitivity = self.target(resource)
            retrieval = Retrieval(
                self.role(subject, context, key, agent_id, policy_set),
                self.user_id(subject, context),
                source_id,
                sensitivity,
                get("session_id"),
                self.task(action, context),
                agent_id,
                get("query"),
                DOOR,
                get("context_hash"),
            )
            for complaint in complaints(retrieval):
                raise _unusable(*complaint.split(": ", 1))
            if None in context.values():  # absent to the core, but not usable here
                for member in ("session_id", "query", "context_hash"):
                    _optional(context, member)
        except Unmapped as fault:
            named = self._names(question, key, policy_set)
            raise Unmapped(fault.reason, **named) from None
        return retrieval

    def agent_id(self, subject: Entity, context: Properties, key: Key) -> Any:
        """Return the agent's id; None if there is none. The value may be of any type: `retrieval`
        checks it."""
        if subject.type in self._subject_types:
            return subject.id
        for member in ("agent_id", "agent"):
            if member in context:
                return _no_null(context[member], member)
        if "agent_id" in subject.properties:
            return _no_null(subject.properties["agent_id"], "agent_id")
        return agent_of(key)

    def role(
        self,
        subject: Entity,
        context: Properties,
        key: Key,
        agent_id: Any,
        policy_set: PolicySet,
    ) -> Any:
        """Return the role. The value may be of any type: `retrieval` checks it. Raises
        `MissingDocument` if the role must be read from the agent's document, which is not here
        yet."""
        role = self.claimed_role(subject, context)
        if role is not None:
            return role
        if agent_id is not None and (fault := identifier_fault(agent_id)):
            raise _unusable("agent_id", fault)
        role = role_of(key, agent_id, policy_set, self._speaks_for)
        if role is None:
            raise Unmapped(
                f"no role: put it into `subject.properties.{self._role_property}`, or tie the key "
                "to an agent or to one role"
            )
        return role

    def claimed_role(self, subject: Entity, context: Properties) -> Any:
        """Return the role that the question names; None if it names none."""
        properties, member = subject.properties, self._role_property
        if "agent_role" in properties:
            return _no_null(properties["agent_role"], "agent_role")
        if member in properties:
            return _no_null(properties[member], member)
        return _optional(context, "agent_role")

    def user_id(self, subject: Entity, context: Properties) -> Any:
        """Return the user that the agent acts for. The value may be of any type: `retrieval` checks
        it."""
        if "user_id" in context:
            return _no_null(context["user_id"], "user_id")
        if "user_id" in subject.properties:
            return _no_null(subject.properties["user_id"], "user_id")
        return subject.id

    def target(self, resource: Entity) -> Target:
        return self._resources.target(resource)

    def task(self, action: Action, context: Properties) -> Any:
        """Return the task; None if there is none. The value may be of any type: `retrieval` checks
        it."""
        name, properties = action
        for when, task in self._actions.get(name, ()):
            if holds(when, properties):
                return _stated_task(properties, context) if task is None else task
        what = _quoted(name)
        raise Unmapped(
            f"no rule of `authzen.actions` covers the action {what}: add one if it reads"
        )

    def _names(self, question: Question, key: Key, policy_set: PolicySet) -> dict[str, Any]:
        """Return the names that could be read from a question that maps to no retrieval, for the
        record of its denial."""
        subject, _, _, context = question
        agent_id, found = None, {}
        with suppress(Unmapped):
            found["agent_id"] = agent_id = self.agent_id(subject, context, key)
        with suppress(Unmapped):
            found["user_id"] = self.user_id(subject, context)
        with suppress(Unmapped):
            found["agent_role"] = self.role(subject, context, key, agent_id, policy_set)
        return found


def _unusable(field: str, fault: str) -> Unmapped:
    return Unmapped(f"{field}: {fault}; it is taken from {_TAKEN_FROM[field]}")


def _stated_task(properties: Properties, context: Properties) -> Any:
    for holder in (context, properties):
        if "task_type" in holder:
            return _no_null(holder["task_type"], "task_type")
    return None


def _optional(context: Properties, member: str) -> Any:
    return _no_null(context[member], member) if member in context else None


def _no_null(value: Any, member: str) -> Any:
    # To the core, None is absent. Here, null is a value that can't be used.
    if value is None:
        raise Unmapped(f"`{member}` is null: leave it out, or give it a value")
    return value


def _quoted(name: str) -> str:
    """Return a name from a request, quoted for a reason, if it is short and fit to be recorded for
    good; otherwise return other words."""
    return f"`{name}`" if len(name) <= 64 and identifier_fault(name) is None else "of this name"


_SEPARATOR = "://"


def proposed_ids(source_id: str, kind: str, rules: tuple[ResourceRule, ...]) -> Iterator[str]:
    """Yield ids of resources of the type `kind` that may stand for the source, some more than once.

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
    """Yield the text that, put between all neighbouring `parts`, gives `source_id`; nothing if
    there is no such text."""
    length, uneven = divmod(len(source_id) - sum(map(len, parts)), len(parts) - 1)
    begin = len(parts[0])
    found = source_id[begin : begin + length]
    if length > 0 and not uneven and found.join(parts) == source_id:
        yield found
