"""Defines guardrails, which are rules that must hold whatever policies say, and the keys of their
file: the values and the meaning of each (`TOOLS.md`, Guardrails).

    never     no request that it describes is allowed
    always    every request that it describes is allowed

Opens no file and knows no policy: `policies.definitions.load` reads guardrails, and
`policies.analysis.guardrails` finds the request that breaks one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

from policies.definitions.definition import DefinitionFaults, Node, shown
from policies.definitions.forms import (
    IDENTIFIER,
    Choice,
    Form,
    ListOf,
    NonEmptyList,
    Schema,
    exact_name,
)
from policies.definitions.model import SENSITIVITIES, Sensitivity
from policies.definitions.records import Key, Record

Kind = Literal["never", "always"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ABSENT = "absent"
"""The word that stands, in `agents` and `tasks`, for calls that name no agent, or no task."""
MEMBERS = ("roles", "except_roles", "agents", "sources", "levels", "tasks")
"""The members by which a guardrail describes requests."""
MAX_ENTRIES = 1000
"""The most entries that one member of a guardrail may list, as many as a policy's list may have."""
MAX_GUARDRAILS = 200
"""The most guardrails that a tenant may have: each costs work whenever a policy changes."""


class Guardrail(NamedTuple):
    """A rule about the requests that its members describe. `kind` is `never` or `always`. An empty
    member means all; `agents` and `tasks` may hold `absent`."""

    name: str
    kind: Kind
    roles: tuple[str, ...] = ()
    except_roles: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    levels: tuple[Sensitivity, ...] = ()
    tasks: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, kind: Kind, members: Mapping[str, Sequence[str]]) -> "Guardrail":
        """Return a guardrail with these members. A member that is absent means all."""
        given = {key: tuple(value) for key, value in members.items()}
        return cls(name, kind, **cast("Any", given))

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> "Guardrail":
        """Parse a guardrail in the form that `to_wire` returns."""
        kind = next(each for each in KINDS if each in body)
        return cls.of(body["name"], kind, body[kind])

    def to_wire(self) -> dict[str, Any]:
        """Return the guardrail as in a file: `{name, never: {…}}` or `{name, always: {…}}`, without
        empty members."""
        members = {key: list(getattr(self, key)) for key in MEMBERS}
        given = {key: value for key, value in members.items() if value}
        return {"name": self.name, self.kind: given}


class DefinedGuardrail(NamedTuple):
    """A guardrail and where it is defined: `file` is relative to the policy directory, `line`
    counts from 1."""

    file: str
    line: int
    guardrail: Guardrail


def _non_empty(item: Form, of: str = " of strings") -> NonEmptyList:
    return NonEmptyList(ListOf(item, of, MAX_ENTRIES))


_ANY = _non_empty(IDENTIFIER)
_DESCRIBED = {
    "roles": Key(_ANY, "Roles, with the wildcards `*` and `?`; absent: every role."),
    "except_roles": Key(_ANY, "Roles that it is not about, with wildcards."),
    "agents": Key(
        _ANY, "Agents, with wildcards; `absent` is the call without one. Absent: every call."
    ),
    "sources": Key(_ANY, "Sources, with wildcards; absent: every source."),
    "levels": Key(_non_empty(Choice(SENSITIVITIES), ""), "Sensitivities; absent: every one."),
    "tasks": Key(
        _non_empty(exact_name("tasks have no wildcards")),
        "Tasks by their names; `absent` is the call without one. Absent: every call.",
    ),
}
_EXACT_ROLES = Key(
    # A pattern would demand it of every role that could ever be named so.
    _non_empty(exact_name("`always` needs the roles by their names")),
    "The roles that must be allowed, by their names.",
    required=True,
)
_WRONG = f"must be a mapping of {', '.join(_DESCRIBED)}"
_GUARDRAIL = Record(
    {
        "name": Key(IDENTIFIER, "Unique within the tenant.", required=True),
        "never": Key(
            Record(_DESCRIBED, _WRONG), "Requests of which not one may be allowed. `{}` is all."
        ),
        "always": Key(
            Record({**_DESCRIBED, "roles": _EXACT_ROLES}, _WRONG),
            "Requests of which every one must be allowed.",
        ),
    },
    "each entry must be a mapping of a guardrail's fields",
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The form of one guardrail in a file, which is read with its place."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> DefinedGuardrail | None:
        before = len(faults.found)
        members = _GUARDRAIL.read(key, node, faults)
        if members is None:
            return None
        kinds: list[Kind] = [kind for kind in KINDS if kind in members]
        if len(kinds) != 1:
            wrong = "has both `never` and `always`" if kinds else "needs `never` or `always`"
            faults.add(node.line, "", f"{wrong}: write one guardrail for each")
        if len(faults.found) > before:
            return None
        guardrail = Guardrail.of(members["name"], kinds[0], members[kinds[0]])
        return DefinedGuardrail(faults.file, node.line, guardrail)

    def schema(self) -> Schema:
        return {**_GUARDRAIL.schema(), "oneOf": [{"required": [kind]} for kind in KINDS]}


GUARDRAIL_FILE = Record(
    {
        "guardrails": Key(
            ListOf(_Entry(), "", MAX_GUARDRAILS), "What must hold, one each.", required=True
        )
    },
    "must be a mapping with the key `guardrails`",
)
"""The form of a whole guardrail file. Reading it gives `DefinedGuardrail`s, and None for each
guardrail that has faults."""


def refuse_duplicates(found: list[DefinedGuardrail], faults: DefinitionFaults) -> None:
    """Add a fault for each guardrail whose name an earlier one has. JSON Schema can't express
    this."""
    first: dict[str, DefinedGuardrail] = {}
    for each in found:
        other = first.setdefault(each.guardrail.name, each)
        if other is not each:
            place = f"{other.file}:{other.line}"
            message = f"{shown(each.guardrail.name)} is already used at {place}"
            faults.add(each.line, "name", message)
