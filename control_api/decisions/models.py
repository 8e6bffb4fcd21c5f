"""Defines the requests to evaluate a retrieval, and the responses (`CONTRACT.md`, Evaluation)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field

from control_api.audit.event_models import Explanation, explanation_shown
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Flag, Identifier, RequestModel, read_flag
from policies.checks.finding import Facts
from policies.definitions.model import Sensitivity
from policies.evaluate import Decision
from policies.explain import explain
from policies.retrieval import MAX_QUERY, Retrieval, parse_retrieval

_EVENT_ID = "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d"
_HEADERS = ("X-Sluice-Decision", "X-Sluice-Event-Id")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A recorded decision (`CONTRACT.md`, Evaluation)."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: str

    with_headers: ClassVar[tuple[str, ...]] = _HEADERS

    def headers(self) -> dict[str, str]:
        """Return the headers that tell the decision to a gateway which does not read the body
        (`CONTRACT.md`, Evaluation)."""
        return {"X-Sluice-Decision": self.decision, "X-Sluice-Event-Id": self.event_id}

    example: ClassVar[dict[str, Any]] = {
        "decision": "ALLOW",
        "policy_name": "loan-underwriting",
        "reason": "policy `loan-underwriting` allows role `loan_underwriter` to read `contracts` "
        "at `high`",
        "event_id": _EVENT_ID,
    }


@dataclass(frozen=True, slots=True)
class Explained:
    """A decision with its explanation, for `?explain=true`."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: str | None
    explain: Annotated[
        Explanation, says("The outcome of each check, and what would have allowed the call.")
    ]

    def headers(self) -> dict[str, str]:
        """Return the same headers as `Evaluated.headers`, or none for a simulation, which has no
        event."""
        if self.event_id is None:
            return {}
        return {"X-Sluice-Decision": self.decision, "X-Sluice-Event-Id": self.event_id}

    example: ClassVar[dict[str, Any]] = {**Evaluated.example, "explain": Explanation.example}


@dataclass(frozen=True, slots=True)
class Simulated:
    """The decision that an evaluation would make; there is no event."""

    decision: Literal["ALLOW", "DENY"]
    policy_name: str
    reason: str
    event_id: Annotated[None, says("Always `null`: a simulation writes no event.")] = None

    example: ClassVar[dict[str, Any]] = {**Evaluated.example, "event_id": None}


@dataclass(frozen=True, slots=True)
class Batch:
    """The decisions on a batch, in its order; fewer than its items if it stopped early."""

    results: Annotated[list[Evaluated], says("The decisions, in the order of `items`.")]

    example: ClassVar[dict[str, Any]] = {"results": [Evaluated.example]}


class EvaluationRequest(NamedTuple):
    """A request to decide on a retrieval. `explain` is True if the response must explain the
    decision."""

    retrieval: Retrieval
    explain: bool = False


class AskedRetrieval(RequestModel):
    """The body of an evaluation (`CONTRACT.md`, Evaluation). Unknown fields are ignored."""

    # These fields only describe the body; `parse_retrieval` reads it, because this path must be
    # fast. A test compares the two.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    unique_keys: ClassVar[bool] = False
    in_query: ClassVar[frozenset[str]] = frozenset({"explain"})
    example: ClassVar[dict[str, Any]] = {
        "agent_role": "loan_underwriter",
        "agent_id": "agt_loans",
        "user_id": "u-1001",
        "source_id": "contracts",
        "sensitivity_level": "high",
        "query": "terms of contract 4711",
    }

    agent_role: Identifier
    user_id: Identifier
    source_id: Identifier
    sensitivity_level: Sensitivity
    session_id: Identifier | None = None
    task_type: Identifier | None = None
    agent_id: Identifier | None = None
    query: Annotated[
        str | None,
        says(f"The query text, at most {MAX_QUERY} bytes in UTF-8."),
    ] = None
    source_type: str | None = Field(None, pattern="^[a-z0-9_-]{1,32}$")
    context_hash: str | None = Field(None, pattern="^[0-9a-f]{64}$")

    explain: Annotated[Flag, says("Whether to explain the outcome of each check.")] = False

    @classmethod
    def read(cls, values: dict[str, Any]) -> EvaluationRequest:
        # `explain` is text from the query; a member of that name in the body is ignored.
        return EvaluationRequest(
            parse_retrieval(values), read_flag(values.get("explain"), "explain")
        )


def explained(
    answer: Evaluated | Simulated, retrieval: Retrieval, facts: Facts | None, decision: Decision
) -> Explained:
    """Return the response with an explanation added: the outcome of each check, and the nearest
    miss."""
    shown = explanation_shown(explain(retrieval, facts, decision))
    return Explained(answer.decision, answer.policy_name, answer.reason, answer.event_id, shown)
