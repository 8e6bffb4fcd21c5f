"""Warns about policies that are valid but probably not what their author meant.

Works on `Definition`s and reads no file. A warning has no effect: the policies are in force as they
are written. `policies.analysis.redundancy`, which is exact, finds the policies and entries that do
nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from policies.analysis.callers import escapes
from policies.analysis.names import TooManyClasses
from policies.analysis.redundancy import Idle, idle
from policies.definitions.definition import Definition, DefinitionFault, in_order, shown
from policies.definitions.model import Policy
from policies.definitions.policy_form import LISTS
from policies.definitions.wildcard import is_pattern

_WILD = ("allowed_sources", "denied_sources", "permitted_agent_ids")
"""The lists whose entries may hold the wildcards `*` and `?` (`CONTRACT.md`, Wildcards and empty
lists)."""
_SHOWN = 3
"""The most policies or entries that a warning names."""
_OUTCOMES = {
    "allowed": ("allows the same as well", "together allow the same as well"),
    "denied": ("always denies it", "together always deny it"),
    "decided": ("decides the same", "together decide the same"),
}
"""By outcome, how a warning says that other policies make a policy or entry idle: in the singular
for one other policy, in the plural for several."""


def lint(definitions: Iterable[Definition]) -> list[DefinitionFault]:
    """Return a warning for each likely mistake, sorted by file and line."""
    every = tuple(definitions)
    spelled = (_warning(each, *found) for each in every for found in _spelling(each.body))
    return in_order((*spelled, *_escaped(every), *_idle(every)))


def _warning(definition: Definition, key: str, message: str) -> DefinitionFault:
    named = f"{shown(definition.body['name'])}: {message}"
    return DefinitionFault(definition.file, definition.line, key, named)


def _spelling(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the likely mistakes that one policy shows by itself, each as the key and the
    message."""
    allowed, denied = body["allowed_sources"], body["denied_sources"]
    if "*" in allowed and "*" not in denied and body["max_sensitivity"] == "critical":
        yield "allowed_sources", "allows every source at every sensitivity"
    for key in sorted(LISTS):
        yield from _entries(key, body[key])


def _entries(key: str, entries: list[str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for entry in entries:
        if entry in seen:
            yield key, f"{shown(entry)} is listed twice"
        seen.add(entry)
        if entry != entry.strip():
            yield key, f"{shown(entry)} begins or ends with white space, which is significant"
        if key in _WILD and "[" in entry:
            yield key, f"{shown(entry)}: `[` is literal, not a character class"
        if key not in _WILD and is_pattern(entry):
            yield key, f"{shown(entry)}: `*` and `?` are not wildcards in this list"


def _by_role(definitions: Iterable[Definition]) -> dict[tuple[str, str], list[Definition]]:
    roles: dict[tuple[str, str], list[Definition]] = defaultdict(list)
    for each in definitions:
        tenant = each.file.partition("/")[0]
        roles[tenant, each.body["agent_role"]].append(each)
    return roles


def _escaped(definitions: Iterable[Definition]) -> Iterator[DefinitionFault]:
    """Yield a warning for each entry that is denied to agents but not to a call that names no
    agent, so that the call escapes the denial."""
    for those in _by_role(definitions).values():
        by_id = {str(number): each for number, each in enumerate(those)}
        for found in escapes([_policy(id_, each) for id_, each in by_id.items()]):
            message = (
                f"{shown(found.entry)} is not denied to a call that names no agent, and policy "
                f"{shown(found.by.name)} allows it: set `require_agent_id`, or deny it in a policy "
                "without `permitted_agent_ids`"
            )
            yield _warning(by_id[found.policy.policy_id], found.key, message)


def _idle(definitions: Iterable[Definition]) -> Iterator[DefinitionFault]:
    """Yield a warning for each policy and entry that changes no decision beside the other policies
    of its role."""
    for (_, role), those in _by_role(definitions).items():
        # By an id, since two files may give one name twice.
        by_id = {str(number): each for number, each in enumerate(those)}
        try:
            for found in idle(_policy(number, each) for number, each in by_id.items()):
                message = f"{_subject(found)}{_decided(found)}"
                yield _warning(by_id[found.policy.policy_id], found.key, message)
        except TooManyClasses as error:
            message = f"not checked for what does nothing in role {shown(role)}: {error}"
            yield _warning(those[0], "", message)


def _policy(policy_id: str, definition: Definition) -> Policy:
    return Policy.from_wire({**definition.body, "policy_id": policy_id, "version": 0})


def _subject(found: Idle) -> str:
    if not found.key:
        return "does nothing: "
    return f"{shown(found.entry)} {'is redundant' if found.covered_by else 'does nothing'}: "


def _decided(found: Idle) -> str:
    if found.covered_by:
        verb = "covers" if len(found.covered_by) == 1 else "cover"
        return f"{_listed(found.covered_by)} {verb} it"
    if not found.by:
        return "it allows nothing and denies nothing"
    if found.by == (found.policy,):
        return "the policy itself denies it"
    one, several = _OUTCOMES[found.outcome]
    names = _listed(each.name for each in found.by)
    return f"policy {names} {one}" if len(found.by) == 1 else f"policies {names} {several}"


def _listed(names: Iterable[str]) -> str:
    every = tuple(map(shown, names))
    more = " and others" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
