"""A guardrail: what must hold whatever a policy says (`TOOLS.md`, Guardrails).

    never     no request that it describes is allowed
    always    every request that it describes is allowed

Knows neither files nor policies: `policies.definitions.guardrail_file` reads guardrails, and
`policies.analysis.guardrails` finds the request that breaks one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

from policies.definitions.model import Sensitivity

Kind = Literal["never", "always"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ABSENT = "absent"
"""Stands for the call without an agent, or without a task."""
MEMBERS = ("roles", "except_roles", "agents", "sources", "levels", "tasks")
"""What a guardrail may say about the requests it describes."""
MAX_ENTRIES = 1000
"""The most entries of one member, as many as a policy's list may have."""
MAX_GUARDRAILS = 200
"""The most guardrails of one tenant: each costs work whenever a policy changes."""


class Guardrail(NamedTuple):
    """A rule about requests. An empty member means all; `agents` and `tasks` may hold `absent`."""

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
        """The guardrail with these members, an absent one meaning all."""
        given = {key: tuple(value) for key, value in members.items()}
        return cls(name, kind, **cast("Any", given))

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> "Guardrail":
        """What `to_wire` wrote."""
        kind = next(each for each in KINDS if each in body)
        return cls.of(body["name"], kind, body[kind])

    def to_wire(self) -> dict[str, Any]:
        """`{name, never: {…}}` or `{name, always: {…}}`, as in a file: without empty members."""
        members = {key: list(getattr(self, key)) for key in MEMBERS}
        given = {key: value for key, value in members.items() if value}
        return {"name": self.name, self.kind: given}
