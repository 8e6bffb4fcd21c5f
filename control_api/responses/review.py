"""The response to a review of policies that may be in force tomorrow. The analysis process writes
its JSON; these types describe it."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from control_api.responses.access import CHANGED_ROW, ChangedRow
from control_api.responses.evaluations import CheckShown, NearestMiss


@dataclass(frozen=True, slots=True)
class BrokenGuardrail:
    """A guardrail that the policies break, and a request that shows it."""

    guardrail: str
    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    check: str | None
    counterexample: dict[str, Any]

    example: ClassVar[dict[str, Any]] = {
        "guardrail": "payroll-is-hr-only",
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "check": None,
        "counterexample": {**CHANGED_ROW["example"], "source_id": "payroll"},
    }


@dataclass(frozen=True, slots=True)
class FaultInTests:
    """What is wrong with a file of tests, and where. `line` counts from 1; 0 is the whole file."""

    line: int
    key: str
    message: str

    example: ClassVar[dict[str, Any]] = {
        "line": 2,
        "key": "expect",
        "message": "is required",
    }


@dataclass(frozen=True, slots=True)
class FailedTest:
    """A case that is decided otherwise than it expects. `line` is its place in the file."""

    line: int
    name: str
    ask: dict[str, Any]
    expected: dict[str, str]
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
    """How a file of tests comes out. With `faults` nothing was decided; `failures` are the first
    thousand."""

    cases: int
    failed: int
    faults: list[FaultInTests]
    failures: list[FailedTest]

    example: ClassVar[dict[str, Any]] = {"cases": 1, "failed": 0, "faults": [], "failures": []}


@dataclass(frozen=True, slots=True)
class TriedRequest:
    """How one request would be decided, with the ten checks."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    check: str | None
    reason: str
    checks: list[CheckShown]
    nearest_miss: NearestMiss | None
    suggestion: str | None

    example: ClassVar[dict[str, Any]] = {
        "decision": "DENY",
        "policy_name": "loan-underwriting",
        "check": "sensitivity",
        "reason": FailedTest.example["reason"],
        "checks": [CheckShown.example],
        "nearest_miss": NearestMiss.example,
        "suggestion": None,
    }


@dataclass(frozen=True, slots=True)
class PolicyReview:
    """What a change of policies would do. `tests` and `answer` are null if nothing was to be
    tried."""

    newly_allowed: list[ChangedRow]
    newly_denied: list[ChangedRow]
    broken_guardrails: list[BrokenGuardrail]
    tests: TestRun | None
    answer: TriedRequest | None

    example: ClassVar[dict[str, Any]] = {
        "newly_allowed": [CHANGED_ROW],
        "newly_denied": [],
        "broken_guardrails": [BrokenGuardrail.example],
        "tests": TestRun.example,
        "answer": None,
    }
