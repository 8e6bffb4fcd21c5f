"""Makes the cases of a test file, each with its question, its key and the expected answer, or
reports every fault of the file with its line.

A matrix stands for every combination of its values. It is expanded while it is run: ten thousand
cases take no memory. Knows neither YAML nor files: `policies.definitions.load` parses the tree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from policies.definitions.definition import DefinitionFaults, Node, shown
from policies.definitions.model import Agent, AgentStatus, Key, TenantSettings
from policies.retrieval import Retrieval
from policies.testing.file_form import TEST_FILE, UNREGISTERED

Expected = Mapping[str, str]
"""The answer that a case expects: names of a decision's members, and the value that each must
have."""
_ALLOWED: Expected = {"decision": "ALLOW"}
_DENIED: Expected = {"decision": "DENY"}

USER = "test"
"""The user id of a case that names no user: no check looks at it."""


class Case(NamedTuple):
    """One case of a test: a retrieval, and the decision that it must get. `entry` is the entry of
    the file from which it comes."""

    entry: "SingleCase | Matrix"
    retrieval: Retrieval
    expected: Expected

    @property
    def name(self) -> str:
        """The name of the case's entry in the file. For a case of a matrix, the values that
        distinguish it from the others are added; without a name, the call itself is described."""
        asked = self.entry.describe(self.retrieval)
        name = self.entry.name
        if name is None:
            return asked
        return f"{name}: {asked}" if isinstance(self.entry, Matrix) else name


@dataclass(frozen=True, slots=True)
class SingleCase:
    """An entry of a test file with `ask`, which is a single case. `line` counts from 1."""

    line: int
    name: str | None
    key: Key
    ask: Mapping[str, Any]
    expected: Expected

    def __len__(self) -> int:
        return 1

    def cases(self) -> Iterator[Case]:
        yield Case(self, _retrieval(self.ask), self.expected)

    def describe(self, retrieval: Retrieval) -> str:
        return _describe({name: getattr(retrieval, name) for name in self.ask})


@dataclass(frozen=True, slots=True)
class Matrix:
    """An entry of a test file with `matrix`, which is a case for each combination of `values`. A
    combination is expected to be allowed if it agrees with an item of `expect_allow` in each member
    that the item has; all others are expected to be denied."""

    line: int
    name: str | None
    key: Key
    values: Mapping[str, tuple[Any, ...]]
    expect_allow: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return prod(map(len, self.values.values()))

    def cases(self) -> Iterator[Case]:
        fixed = _retrieval({})._asdict()
        columns = [self.values.get(name, (fixed[name],)) for name in Retrieval._fields]
        at = {name: Retrieval._fields.index(name) for name in self.values}
        # Items that list every member are one look-up, however many there are.
        whole = {tuple(map(item.get, at)) for item in self.expect_allow if len(item) == len(at)}
        partial = [
            tuple((at[name], value) for name, value in item.items())
            for item in self.expect_allow
            if len(item) < len(at)
        ]
        places = tuple(at.values())
        for asked in product(*columns):
            allowed = tuple([asked[place] for place in places]) in whole or any(
                all(asked[place] == value for place, value in item) for item in partial
            )
            yield Case(self, Retrieval._make(asked), _ALLOWED if allowed else _DENIED)

    def describe(self, retrieval: Retrieval) -> str:
        return _describe(
            {
                name: getattr(retrieval, name)
                for name, values in self.values.items()
                if len(values) > 1 or name in ("agent_role", "source_id", "sensitivity_level")
            }
        )


Entry = SingleCase | Matrix


class GivenAgent(NamedTuple):
    """An agent as a test file describes it under `given`. Without `permitted_roles`, it may act in
    the role of each call; with a `status` of None, it is not registered."""

    status: AgentStatus | None = "approved"
    permitted_roles: tuple[str, ...] = ()
    bound_key_id: str | None = None


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A parsed test file: the `given` settings and agents, and its entries in order. An agent that
    is not given counts as approved."""

    file: str
    settings: TenantSettings
    agents: Mapping[str, GivenAgent]
    entries: tuple[Entry, ...]
    _known: dict[tuple[str, str], Agent | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        """Return the number of cases, with all combinations of each matrix."""
        return sum(map(len, self.entries))

    def cases(self) -> Iterator[Case]:
        for entry in self.entries:
            yield from entry.cases()

    def agent(self, agent_id: str, role: str) -> Agent | None:
        """Return the registry entry of an agent for a call in the role `role`; None if the agent is
        not registered."""
        # Kept: an agent encodes itself when it is made.
        try:
            return self._known[agent_id, role]
        except KeyError:
            given = self.agents.get(agent_id, GivenAgent())
            roles = given.permitted_roles or (role,)
            status, bound = given.status, given.bound_key_id
            found = None if status is None else Agent(agent_id, status, roles, bound)
            return self._known.setdefault((agent_id, role), found)


def _retrieval(ask: Mapping[str, Any]) -> Retrieval:
    # Read and checked already. Null counts as absent, as in a body.
    given = {name: value for name, value in ask.items() if value is not None}
    return Retrieval(**{**_DEFAULTS, **given})


_DEFAULTS: dict[str, Any] = {
    "agent_role": "",
    "user_id": USER,
    "source_id": "",
    "sensitivity_level": "low",
}


def _describe(asked: Mapping[str, Any]) -> str:
    """Describe a call on one line, by the names and values of its members."""
    return ", ".join(
        f"{name} {'absent' if value is None else shown(value)}" for name, value in asked.items()
    )


MAX_CASES: Final = 100_000
"""The most combinations that one matrix may have."""
_FROZEN_AT = 0
_UNBOUND = Key("test", "evaluate")


def parse(tree: Node, faults: DefinitionFaults) -> CaseFile | None:
    """Parse a test file from its tree of values; None if it has faults, which are added to
    `faults`."""
    before = len(faults.found)
    read = TEST_FILE.read("", tree, faults)
    if read is None or len(faults.found) > before:
        return None
    given = read.get("given", {})
    keys = {name: _key(name, key) for name, key in given.get("keys", {}).items()}
    items: list[Node] = tree.value["tests"].value
    entries = tuple(
        _entry(node, test, _calling(node, test, keys, faults), faults)
        for node, test in zip(items, read["tests"], strict=True)
    )
    if len(faults.found) > before:
        return None
    tenant = given.get("tenant", {})
    settings = TenantSettings(
        "test",
        require_agent_id=tenant.get("require_agent_id", False),
        frozen_at=_FROZEN_AT if tenant.get("frozen") else None,
    )
    agents = {name: _agent(agent) for name, agent in given.get("agents", {}).items()}
    return CaseFile(faults.file, settings, agents, entries)


def _agent(given: Mapping[str, Any]) -> GivenAgent:
    role = given.get("agent_role")
    # The registry's default: an agent that lists no roles may use its own.
    roles = given.get("permitted_roles") or ([] if role is None else [role])
    status = given.get("status", "approved")
    status = None if status == UNREGISTERED else status
    return GivenAgent(status, tuple(roles), given.get("bound_key_id"))


def _key(name: str, given: Mapping[str, Any]) -> Key:
    roles = tuple(given.get("permitted_roles", ()))
    return Key(name, "evaluate", given.get("bound_agent_id"), roles)


def _calling(
    node: Node, test: Mapping[str, Any], keys: Mapping[str, Key], faults: DefinitionFaults
) -> Key:
    """Return the API key with which a case calls: the one it names, else the only one under
    `given.keys`, else one that is bound to no agent. Adds a fault if that is ambiguous or
    unknown."""
    name = test.get("key")
    if name is not None and name in keys:
        return keys[name]
    if name is not None:
        faults.add(node.value["key"].line, "key", f"{shown(name)} is not in `given.keys`")
    elif len(keys) > 1:
        faults.add(node.line, "key", "is required: `given.keys` has several")
    return _UNBOUND if len(keys) != 1 else next(iter(keys.values()))


def _entry(node: Node, test: Mapping[str, Any], key: Key, faults: DefinitionFaults) -> Entry:
    name = test.get("name")
    if "ask" in test:
        return SingleCase(node.line, name, key, test["ask"], test["expect"])
    values = {member: tuple(dict.fromkeys(of)) for member, of in test["matrix"].items()}
    size = prod(map(len, values.values()))
    if size > MAX_CASES:
        line = node.value["matrix"].line
        faults.add(line, "matrix", f"has {size} combinations; the most is {MAX_CASES}")
    # An item that agrees with no combination would expect nothing: its author meant another.
    for item, at in zip(test["expect_allow"], node.value["expect_allow"].value, strict=True):
        for member, value in item.items():
            if value not in values.get(member, ()):
                told = "null" if value is None else shown(value)
                faults.add(at.line, "expect_allow", f"{member}: {told} is not in the matrix")
    return Matrix(node.line, name, key, values, tuple(test["expect_allow"]))
