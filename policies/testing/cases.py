"""The cases of a test file: what is asked, by which key, and what is expected.

A matrix stands for every combination of its values. It is expanded while it is run: ten thousand
cases take no memory. Knows no file and no policy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple

from policies.definitions.definition import shown
from policies.definitions.model import Agent, AgentStatus, Key, TenantSettings
from policies.retrieval import Retrieval

Expected = Mapping[str, str]
"""Members of a decision, and the value that each must have."""
_ALLOWED: Expected = {"decision": "ALLOW"}
_DENIED: Expected = {"decision": "DENY"}

USER = "test"
"""The user of a case that names none: no check looks at it."""


class Case(NamedTuple):
    """One question and the answer that it must have."""

    entry: "Asked | Matrix"
    retrieval: Retrieval
    expected: Expected

    @property
    def name(self) -> str:
        """Its name in the file; of a matrix, with the values that tell it from the others."""
        asked = self.entry.told(self.retrieval)
        name = self.entry.name
        if name is None:
            return asked
        return f"{name}: {asked}" if isinstance(self.entry, Matrix) else name


@dataclass(frozen=True, slots=True)
class Asked:
    """An entry with `ask`: one case. `line` counts from 1."""

    line: int
    name: str | None
    key: Key
    ask: Mapping[str, Any]
    expected: Expected

    def __len__(self) -> int:
        return 1

    def cases(self) -> Iterator[Case]:
        yield Case(self, _retrieval(self.ask), self.expected)

    def told(self, retrieval: Retrieval) -> str:
        return _told({name: getattr(retrieval, name) for name in self.ask})


@dataclass(frozen=True, slots=True)
class Matrix:
    """An entry with `matrix`: a case for each combination. Those that agree with an item of
    `expect_allow`, in each member that the item has, are to be allowed, all others denied."""

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

    def told(self, retrieval: Retrieval) -> str:
        return _told(
            {
                name: getattr(retrieval, name)
                for name, values in self.values.items()
                if len(values) > 1 or name in ("agent_role", "source_id", "sensitivity_level")
            }
        )


Entry = Asked | Matrix


class GivenAgent(NamedTuple):
    """An agent as a file gives it. Without `permitted_roles` it may use the role of each call;
    without a status it is not registered."""

    status: AgentStatus | None = "approved"
    permitted_roles: tuple[str, ...] = ()
    bound_key_id: str | None = None


@dataclass(frozen=True, slots=True)
class CaseFile:
    """What a file gives, and its entries in order. An agent that it does not give is approved."""

    file: str
    settings: TenantSettings
    agents: Mapping[str, GivenAgent]
    entries: tuple[Entry, ...]
    _known: dict[tuple[str, str], Agent | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        """The number of cases."""
        return sum(map(len, self.entries))

    def cases(self) -> Iterator[Case]:
        for entry in self.entries:
            yield from entry.cases()

    def agent(self, agent_id: str, role: str) -> Agent | None:
        """The registry's entry for a call in `role`; None if the agent is not registered."""
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


def _told(asked: Mapping[str, Any]) -> str:
    """A call in words, on one line."""
    return ", ".join(
        f"{name} {'absent' if value is None else shown(value)}" for name, value in asked.items()
    )
