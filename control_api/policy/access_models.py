"""Defines the responses about what policies allow (`TOOLS.md`, Rows), and to a review of a change.

The analysis process writes their JSON; these types describe it.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import WithJsonSchema

from control_api.audit.event_models import ExplainedCheck, NearestMiss
from control_api.edge.field_descriptions import says
from policies.definitions.model import Sensitivity

_NAME = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "description": "A name that reads like a pattern."}},
    "additionalProperties": False,
}
_ONE = {"anyOf": [{"type": "string"}, _NAME]}
_EXCEPT = {
    "type": "object",
    "required": ["any", "except"],
    "properties": {
        "any": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": _ONE}],
            "description": "One of these matches.",
        },
        "except": {"type": "array", "items": _ONE, "description": "None of these matches."},
    },
    "additionalProperties": False,
}
Item = Annotated[
    str | dict[str, Any], WithJsonSchema({"anyOf": [{"type": "string"}, _NAME, _EXCEPT]})
]
"""One item of a row: a pattern, a name, `absent`, or a pattern with its exceptions."""

SourceItems = Annotated[list[Item], says("Sources as patterns, with exceptions.")]


@dataclass(frozen=True, slots=True)
class RowDecision:
    """The decision on a row's example, if its identity checks pass."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    check: str | None

    example: ClassVar[dict[str, Any]] = {
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "check": None,
    }


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A group of requests whose decision changes: all requests that the row matches."""

    agent_role: str
    agents: list[Item]
    tasks: list[Item]
    sources: SourceItems
    levels: list[Sensitivity]
    example: Annotated[
        dict[str, Any], says("A request that the row matches, as the body of an evaluation.")
    ]
    before: Annotated[RowDecision, says("What is decided about the example now.")]
    after: Annotated[RowDecision, says("What would be decided about it.")]


CHANGED_ROW: dict[str, Any] = {
    "agent_role": "loan_underwriter",
    "agents": ["absent", "*"],
    "tasks": ["absent", "*"],
    "sources": ["contracts"],
    "levels": ["low", "medium", "high"],
    "example": {
        "agent_role": "loan_underwriter",
        "user_id": "example-user",
        "source_id": "contracts",
        "sensitivity_level": "low",
    },
    "before": {"decision": "DENY", "policy_name": "default_deny", "check": "policy_exists"},
    "after": RowDecision.example,
}


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """The requests whose decision would change. Both lists are empty if there is none."""

    newly_allowed: Annotated[
        list[ChangedRow], says("Requests that are denied now and would be allowed.")
    ]
    newly_denied: Annotated[
        list[ChangedRow], says("Requests that are allowed now and would be denied.")
    ]

    example: ClassVar[dict[str, Any]] = {"newly_allowed": [CHANGED_ROW], "newly_denied": []}


@dataclass(frozen=True, slots=True)
class AccessRow:
    """Requests that are allowed now, for the registered agents in `agent_ids`, and for the call
    without an agent if `agents` has `absent`."""

    agent_role: str
    agents: list[Item]
    tasks: list[Item]
    sources: SourceItems
    agent_ids: list[str]
    levels: list[Sensitivity]
    policies: Annotated[list[str], says("The policies that allow it, by name.")]


@dataclass(frozen=True, slots=True)
class AccessCell:
    """The levels that a role's policies allow of one source or pattern: at `level` at least one
    request, at `always` every one, by any agent, for any task, of any name that the pattern
    matches. Where the two differ, `depends_on` says what decides."""

    level: Annotated[
        Sensitivity | None,
        says("The highest sensitivity at which some request is allowed, or `null`."),
    ]
    always: Annotated[
        Sensitivity | None,
        says("The highest sensitivity at which every request is allowed, or `null`."),
    ]
    depends_on: Annotated[
        list[Literal["agents", "tasks", "sources"]],
        says("What decides whether a request at `level` is allowed. Empty if every one is."),
    ]


@dataclass(frozen=True, slots=True)
class AccessOfRole:
    """A row of the matrix. `cells` are in the order of the sources; null, with a `fault`, if the
    role's patterns can't be analysed."""

    agent_role: str
    cells: Annotated[
        list[AccessCell] | None,
        says(
            "What the role's policies allow of each of the `sources`, in their order. `null` with "
            "a `fault`."
        ),
    ]
    fault: Annotated[
        str | None, says("Why the role's patterns can't be analysed. `null` if they can.")
    ]


@dataclass(frozen=True, slots=True)
class AccessMatrix:
    """The access that policies allow, with a row for each role and a column for each source. Pass
    `next_source` as `source_after` to get the next columns; null if there are none."""

    sources: Annotated[list[str], says("The columns: sources and patterns, as policies name them.")]
    next_source: Annotated[
        str | None, says("The `source_after` of the next page of sources. `null` on the last.")
    ]
    roles: Annotated[list[AccessOfRole], says("The roles of this page, by name.")]

    example: ClassVar[dict[str, Any]] = {
        "sources": ["contracts", "rest://files/*"],
        "next_source": None,
        "roles": [
            {
                "agent_role": "loan_underwriter",
                "cells": [
                    {"level": "high", "always": "high", "depends_on": []},
                    {"level": "medium", "always": None, "depends_on": ["tasks", "sources"]},
                ],
                "fault": None,
            }
        ],
    }


@dataclass(frozen=True, slots=True)
class PolicyAccess:
    """The access that the policies allow, by rows."""

    rows: Annotated[list[AccessRow], says("The answer. No two rows match the same request.")]

    example: ClassVar[dict[str, Any]] = {
        "rows": [
            {
                "agent_role": "loan_underwriter",
                "agents": ["absent", "*"],
                "tasks": ["absent", "*"],
                "sources": ["contracts"],
                "agent_ids": ["agt_loans_1"],
                "levels": ["low", "medium", "high"],
                "policies": ["loan-underwriting"],
            }
        ]
    }


@dataclass(frozen=True, slots=True)
class BrokenGuardrail:
    """A guardrail that the policies break, and a request that shows it."""

    guardrail: Annotated[str, says("The guardrail's name.")]
    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    check: str | None
    counterexample: Annotated[
        dict[str, Any], says("A request that breaks the guardrail, as the body of an evaluation.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "guardrail": "payroll-is-hr-only",
        **RowDecision.example,
        "counterexample": {**CHANGED_ROW["example"], "source_id": "payroll"},
    }


Line = Annotated[int, says("The line in the file, from 1. `0` is the whole file.")]


@dataclass(frozen=True, slots=True)
class FaultInTests:
    """A fault in a file of tests, with its place. `line` counts from 1; 0 is the whole file."""

    line: Line
    key: Annotated[str, says("The key that the fault is about. Empty if it is about none.")]
    message: Annotated[str, says("What is wrong.")]

    example: ClassVar[dict[str, Any]] = {"line": 2, "key": "expect", "message": "is required"}


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A case that is decided otherwise than it expects. `line` is its place in the file."""

    line: Line
    name: Annotated[str, says("The case's name.")]
    ask: Annotated[dict[str, Any], says("What the case asked.")]
    expected: Annotated[dict[str, str], says("What the case expected of the decision.")]
    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    check: str | None
    reason: str
    nearest_miss: NearestMiss | None
    suggestion: str | None

    example: ClassVar[dict[str, Any]] = {
        "line": 2,
        "name": "contracts can be read",
        "ask": CHANGED_ROW["example"],
        "expected": {"decision": "ALLOW"},
        "decision": "DENY",
        "policy_name": "loan-underwriting",
        "check": "sensitivity",
        "reason": "sensitivity `critical` is above `high`, the most that policy "
        "`loan-underwriting` allows",
        "nearest_miss": NearestMiss.example,
        "suggestion": None,
    }


@dataclass(frozen=True, slots=True)
class TestRun:
    """The outcome of a file of tests. With `faults` nothing was decided; `failures` are the first
    thousand."""

    cases: Annotated[int, says("How many cases were decided.")]
    failed: Annotated[int, says("How many were decided otherwise than they expect.")]
    faults: Annotated[
        list[FaultInTests],
        says("What is wrong with the file. Nothing is decided if there are some."),
    ]
    failures: Annotated[list[FailedTest], says("Those cases, at most the first thousand.")]

    example: ClassVar[dict[str, Any]] = {"cases": 1, "failed": 0, "faults": [], "failures": []}


@dataclass(frozen=True, slots=True)
class TriedRequest(RowDecision):
    """The decision on one request, with the ten checks."""

    reason: str
    checks: list[ExplainedCheck]
    nearest_miss: NearestMiss | None
    suggestion: str | None

    example: ClassVar[dict[str, Any]] = {
        "decision": "DENY",
        "policy_name": "loan-underwriting",
        "check": "sensitivity",
        "reason": FailedTest.example["reason"],
        "checks": [ExplainedCheck.example],
        "nearest_miss": NearestMiss.example,
        "suggestion": None,
    }


@dataclass(frozen=True, slots=True)
class PolicyReview(PolicyDifference):
    """The effects of a change of policies. `tests` and `answer` are null if nothing was to be
    tried."""

    broken_guardrails: list[BrokenGuardrail]
    tests: Annotated[TestRun | None, says("How the tests came out. `null` without tests.")]
    answer: Annotated[
        TriedRequest | None, says("How the request in `ask` would be decided. `null` without one.")
    ]

    example: ClassVar[dict[str, Any]] = {
        **PolicyDifference.example,
        "broken_guardrails": [BrokenGuardrail.example],
        "tests": TestRun.example,
        "answer": None,
    }
