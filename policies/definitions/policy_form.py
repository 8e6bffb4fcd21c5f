"""The form of a policy file (`CONTRACT.md`, Policies): its keys, the values that each may hold, and
what each means."""

from dataclasses import dataclass
from typing import Any

from policies.definitions.definition import Definition, DefinitionFaults, Node
from policies.definitions.forms import (
    IDENTIFIER,
    Choice,
    ListOf,
    Optional,
    Schema,
    WholeNumber,
)
from policies.definitions.model import SENSITIVITIES
from policies.definitions.records import Key, Record

_NAMES = ListOf(IDENTIFIER, " of strings")

_POLICY = Record(
    {
        "name": Key(IDENTIFIER, "Unique within the tenant.", required=True),
        "agent_role": Key(
            IDENTIFIER, "The role that it is for, exactly as the call claims it.", required=True
        ),
        "allowed_sources": Key(
            _NAMES,
            "Sources that the role may read; `*` is any run of characters, `?` is one. `[]` allows "
            "nothing.",
            required=True,
        ),
        "denied_sources": Key(
            _NAMES,
            "Sources that the role may never read, whatever another of its policies allows; with "
            "the same wildcards. Absent: none.",
        ),
        "max_sensitivity": Key(
            Choice(SENSITIVITIES), "The highest sensitivity that it allows.", required=True
        ),
        "allowed_tasks": Key(
            _NAMES,
            "The only tasks that it allows; absent or empty: every task that is not denied. No "
            "wildcards.",
        ),
        "denied_tasks": Key(_NAMES, "Tasks that it denies. No wildcards."),
        "session_ttl_minutes": Key(
            Optional(WholeNumber(7)),
            "How long a session of the role lasts; the smallest of its policies applies.",
        ),
        "permitted_agent_ids": Key(
            _NAMES,
            "The only agents that it allows, with wildcards; absent or empty: every agent, and "
            "calls without one.",
        ),
        "industry": Key(
            Optional(IDENTIFIER), "Where it belongs; by default the name of the file's folder."
        ),
        "process_group": Key(
            Optional(IDENTIFIER), "Where it belongs; by default the name of the file."
        ),
    },
    "each entry must be a mapping of a policy's fields",
)

FIELDS = tuple(_POLICY.keys)
"""The names of a policy's fields, in the order of `CONTRACT.md`, Policies."""

LISTS = tuple(name for name, key in _POLICY.keys.items() if key.form is _NAMES)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The form of one policy in a file, which is read with its place."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Definition | None:
        before = len(faults.found)
        members = _POLICY.read(key, node, faults)
        if members is None or len(faults.found) > before:
            return None
        body: dict[str, Any] = {name: [] if name in LISTS else None for name in FIELDS}
        return Definition(faults.file, node.line, body | members)

    def schema(self) -> Schema:
        return _POLICY.schema()


POLICY_FILE = Record(
    {"policies": Key(ListOf(_Entry()), "The tenant's policies in this file.", required=True)},
    "must be a mapping with the key `policies`",
)
"""The form of a whole policy file. Reading it gives `Definition`s, and None for each policy that
has faults."""
