"""The request to evaluate a retrieval (`service.md` 2.10). Does not know how a decision is made."""

from typing import Any, ClassVar, NamedTuple

from pydantic import ConfigDict, Field

from control_api.requests.base import Flag, Identifier, RequestModel, read_flag
from policies.definitions.model import Sensitivity
from policies.retrieval import MAX_QUERY, Retrieval, parse_retrieval


class EvaluationRequest(NamedTuple):
    """A retrieval to decide on, and whether to explain the decision."""

    retrieval: Retrieval
    explain: bool = False


class AskedRetrieval(RequestModel):
    """The body of an evaluation (`service.md` 2.10). Unknown fields are ignored."""

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
    query: str | None = Field(
        None, description=f"The query text, at most {MAX_QUERY} bytes in UTF-8."
    )
    source_type: str | None = Field(None, pattern="^[a-z0-9_-]{1,32}$")
    context_hash: str | None = Field(None, pattern="^[0-9a-f]{64}$")

    explain: Flag = Field(False, description="Whether to explain the outcome of each check.")

    @classmethod
    def read(cls, values: dict[str, Any]) -> EvaluationRequest:
        # `explain` is text from the query; a member of that name in the body is ignored.
        return EvaluationRequest(
            parse_retrieval(values), read_flag(values.get("explain"), "explain")
        )
