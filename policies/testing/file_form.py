"""Declares the form of a test file (`TOOLS.md`, Tests): its keys, the values and the meaning of
each, and the forms that only such files have, beyond `policies.definitions.forms`."""

import re
from dataclasses import dataclass
from typing import Any

from policies.checks.order import NAMES
from policies.definitions.definition import DefinitionFaults, Node, shown
from policies.definitions.forms import (
    IDENTIFIER,
    Choice,
    Flag,
    Form,
    ListOf,
    MappingByName,
    NonEmptyList,
    Optional,
    Schema,
    Text,
)
from policies.definitions.model import AGENT_STATUSES, SENSITIVITIES
from policies.definitions.records import Key, Record
from policies.retrieval import MAX_QUERY


def _at_most(most: int) -> Text:
    """Return the form of a string of at most `most` bytes of UTF-8. Its JSON Schema can only limit
    characters."""
    wrong = f"must be a string of at most {most} bytes"
    return Text(lambda text: wrong if len(text.encode()) > most else None, {"maxLength": most})


def _written(whole: re.Pattern[str]) -> Text:
    """Return the form of a string that the expression matches as a whole."""
    wrong = f"must have the form {whole.pattern}, not "
    return Text(
        lambda text: None if whole.fullmatch(text) else wrong + shown(text),
        {"pattern": f"^{whole.pattern}$"},
    )


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """The form of a mapping that must have at least one of its keys."""

    record: Record

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        if node.tag == "map" and not node.value:
            faults.add(node.line, key, f"needs at least one of {', '.join(self.record.keys)}")
            return None
        return self.record.read(key, node, faults)

    def schema(self) -> Schema:
        return {**self.record.schema(), "minProperties": 1}


UNREGISTERED = "unregistered"
"""The status, in a test file, of an agent that the registry does not know."""

_REQUIRED = ("agent_role", "source_id", "sensitivity_level")
_NAME = IDENTIFIER
_SOURCE_TYPE = _written(re.compile(r"[a-z0-9_-]{1,32}"))
_CONTEXT_HASH = _written(re.compile(r"[0-9a-f]{64}"))
_ASK: dict[str, tuple[Form, str]] = {
    "agent_role": (_NAME, "The role that the call claims."),
    "user_id": (_NAME, "The user; no check looks at it."),
    "source_id": (_NAME, "What is to be read."),
    "sensitivity_level": (Choice(SENSITIVITIES), "How sensitive it is."),
    "session_id": (Optional(_NAME), "A session that no call has claimed before."),
    "task_type": (Optional(_NAME), "The task."),
    "agent_id": (Optional(_NAME), "The agent; approved unless `given` says otherwise."),
    "query": (Optional(_at_most(MAX_QUERY)), "The text of the query; no check looks at it."),
    "source_type": (
        _SOURCE_TYPE,
        "The kind of source; no check looks at it.",
    ),
    "context_hash": (Optional(_CONTEXT_HASH), "No check looks at it."),
}
"""The keys of a case's call, which are the members of an evaluation's body (`policies.retrieval`):
the form and the meaning of each."""
ASK = Record(
    {name: Key(form, says, name in _REQUIRED) for name, (form, says) in _ASK.items()},
    f"must be a mapping of {', '.join(_ASK)}",
)
EXPECT = Record(
    {
        "decision": Key(Choice(("ALLOW", "DENY")), "The decision."),
        "policy_name": Key(_NAME, "The policy that decides, or the name of a denial before any."),
        "check": Key(Choice(NAMES), "The check that denies."),
        "reason": Key(_at_most(MAX_QUERY), "The reason, word for word."),
    },
    "must be a mapping of decision, policy_name, check, reason",
)
_AGENT = Record(
    {
        "agent_role": Key(_NAME, "Its role; by default that of each call."),
        "status": Key(
            Choice((*AGENT_STATUSES, UNREGISTERED)),
            f"Its status, `approved` by default; `{UNREGISTERED}`: the registry does not know it.",
        ),
        "permitted_roles": Key(
            NonEmptyList(ListOf(_NAME, " of strings"), "leave it out"),
            "The roles that it may use; by default its own.",
        ),
        "bound_key_id": Key(Optional(_NAME), "The only key that it may call with."),
    },
    "must be a mapping of an agent's fields",
)
_KEY = Record(
    {
        "bound_agent_id": Key(Optional(_NAME), "The only agent that may call with it."),
        "permitted_roles": Key(
            ListOf(_NAME, " of strings"), "The only roles that it is for; absent or empty: all."
        ),
    },
    "must be a mapping of a key's fields",
)
_GIVEN = Record(
    {
        "agents": Key(
            MappingByName(_AGENT, name=_NAME), "Agents by their ids. Every other agent is approved."
        ),
        "keys": Key(
            MappingByName(_KEY, name=_NAME),
            "Keys by their ids. Without any, cases call with a key that is not bound.",
        ),
        "tenant": Key(
            Record(
                {
                    "require_agent_id": Key(Flag(), "Whether every call has to name an agent."),
                    "frozen": Key(Flag(), "Whether the tenant is frozen."),
                },
                "must be a mapping of require_agent_id, frozen",
            ),
            "The tenant's settings.",
        ),
    },
    "must be a mapping of agents, keys, tenant",
)
_CASE = {
    "name": Key(_NAME, "What failures call it."),
    "key": Key(_NAME, "The key that it calls with: the only one in `given`, unless it is named."),
}
_ASKED = Record(
    {
        **_CASE,
        "ask": Key(ASK, "The body of an evaluation.", required=True),
        "expect": Key(NotEmpty(EXPECT), "Members that the decision has.", required=True),
    },
    "each entry must be a mapping with `ask` and `expect`, or `matrix` and `expect_allow`",
)
_MATRIX = Record(
    {
        **_CASE,
        "matrix": Key(
            Record(
                {
                    name: Key(
                        NonEmptyList(ListOf(key.form), "leave it out"), key.says, key.required
                    )
                    for name, key in ASK.keys.items()
                },
                "must be a mapping of lists",
            ),
            "Values of the members of an evaluation: every combination is a case.",
            required=True,
        ),
        "expect_allow": Key(
            ListOf(NotEmpty(Record({n: Key(key.form, key.says) for n, key in ASK.keys.items()}))),
            "The combinations that are allowed; all others are denied.",
            required=True,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class _Test:
    """The form of one entry of a test file: a matrix if it has the key `matrix`, otherwise a single
    case."""

    def read(self, key: str, node: Node, faults: DefinitionFaults) -> Any:
        matrix = node.tag == "map" and "matrix" in node.value
        return (_MATRIX if matrix else _ASKED).read(key, node, faults)

    def schema(self) -> Schema:
        return {"if": {"required": ["matrix"]}, "then": _MATRIX.schema(), "else": _ASKED.schema()}


TEST_FILE = Record(
    {
        "given": Key(_GIVEN, "What the cases are decided from."),
        "tests": Key(ListOf(_Test()), "The cases, one each or a matrix of them.", required=True),
    },
    "must be a mapping with the key `tests`",
)
"""The form of a whole test file. `policies.testing.cases` makes cases from what reading it
gives."""
