"""Decide whether an agent may retrieve from a source, and record the decision.

    policy set > facts > session, claimed only by who passes checks 1 to 4 > decision > log > answer

The answer leaves after the record is committed (architecture, rule 2). This is the path of every
evaluation: it reads no database but for what this process has not seen yet.
"""

import logging
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import ConfigDict, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Flag, Identifier, RequestModel, read_flag
from control_api.responses.audit import Level
from control_api.responses.evaluations import (
    CheckShown,
    Evaluated,
    Explained,
    Explanation,
    NearestMiss,
    Simulated,
)
from control_api.tenants.session_claim import claim
from policies.checks.finding import Facts
from policies.definitions.model import Session
from policies.evaluate import TENANT_FROZEN, Decision, admitted, evaluate, gather, refuse
from policies.explain import explain
from policies.retrieval import MAX_QUERY, Retrieval, parse_retrieval
from policies.trail.record import decision_record

ERROR = "evaluation_error"
_log = logging.getLogger("sluice.decision")
# What the metric's `check` says of a denial that no check made; of an ALLOW it says `none`. Another
# policy of these names has a check.
_WITHOUT_CHECK = {name: name for name in (ERROR, TENANT_FROZEN)}


class Question(NamedTuple):
    """A retrieval to decide on, and whether to say why."""

    retrieval: Retrieval
    explain: bool = False


class AskedRetrieval(RequestModel):
    """An evaluation's body (`service.md` 2.10). Unknown fields are passed over.

    These fields describe; `parse_retrieval` reads, since this is the one path that has to be fast.
    A test holds the two against each other.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    unique: ClassVar[bool] = False
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
    sensitivity_level: Level
    session_id: Identifier | None = None
    task_type: Identifier | None = None
    agent_id: Identifier | None = None
    query: str | None = Field(
        None, description=f"The query text, at most {MAX_QUERY} bytes in UTF-8."
    )
    source_type: str | None = Field(None, pattern="^[a-z0-9_-]{1,32}$")
    context_hash: str | None = Field(None, pattern="^[0-9a-f]{64}$")

    explain: Flag = Field(False, description="Whether to explain how each check came out.")

    @classmethod
    def read(cls, values: dict[str, Any]) -> Question:
        # From the query, as text; a body's member of this name is one of those passed over.
        return Question(parse_retrieval(values), read_flag(values.get("explain"), "explain"))


async def evaluate_context(
    service: AppContext, caller: Caller, asked: Annotated[Question, AskedRetrieval]
) -> Evaluated | Explained:
    """Decide whether an agent may retrieve from a data source; a `DENY` is answered with 200."""
    retrieval = asked.retrieval
    decision, facts, event_id = await decide_and_record(service, caller, retrieval)
    answer = Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)
    return explained(answer, retrieval, facts, decision) if asked.explain else answer


async def decide_and_record(
    service: AppContext, caller: Caller, retrieval: Retrieval
) -> tuple[Decision, Facts | None, str]:
    """The decision, what it was made by, and the id of its event, which is in the log."""
    tenant = caller.tenant
    await tenant.need_for(retrieval)
    session = None if retrieval.session_id is None else await _session(service, caller, retrieval)
    decision, facts = decide(caller, retrieval, session)
    event_id = service.new_id()
    record = decision_record(
        retrieval,
        decision,
        facts,
        event_id=event_id,
        salt=service.entropy(32),
        masking=tenant.policy_set.masks(),
    )
    # Not committed yet: if we die here the caller gets no answer, and nothing was decided.
    await service.log.append(tenant.tenant_id, record)
    _observe(service, decision, event_id)
    return decision, facts, event_id


def explained(
    answer: Evaluated | Simulated, retrieval: Retrieval, facts: Facts | None, decision: Decision
) -> Explained:
    """The same answer, and why."""
    told = explain(retrieval, facts, decision)
    checks = [CheckShown(**check) for check in told["checks"]]
    miss = told["nearest_miss"]
    return Explained(
        answer.decision,
        answer.policy_name,
        answer.reason,
        answer.event_id,
        Explanation(checks, None if miss is None else NearestMiss(**miss)),
    )


def decide(
    caller: Caller, asked: Retrieval, session: Session | None
) -> tuple[Decision, Facts | None]:
    """The decision and the facts it was made by. A check that raises denies (contract, 3)."""
    try:
        facts = gather(caller.tenant.policy_set, caller.key, asked)
        if session is not None:
            facts = facts._replace(session=session)
        return evaluate(asked, facts), facts
    except Exception:  # noqa: BLE001  # whatever it is, the answer is no
        _log.exception("evaluation failed")
        return refuse(ERROR, "the evaluation failed, and so it is denied"), None


async def _session(service: AppContext, caller: Caller, asked: Retrieval) -> Session | None:
    """The session as it stands, claimed by this call if it is the first. None for who fails one of
    the checks before: whose session it is, is none of their business."""
    assert asked.session_id is not None
    tenant = caller.tenant
    if not _admitted(caller, asked):
        return None
    known = tenant.sessions.at(asked.session_id, service.clock.now())
    if known is not None:
        return known
    row = await claim(
        service, tenant, asked.session_id, asked.agent_role, asked.agent_id, asked.user_id
    )
    # The policy set may have changed meanwhile: what is decided is decided by what holds now.
    await tenant.need_for(asked)
    return row.at(service.clock.now())


def _admitted(caller: Caller, asked: Retrieval) -> bool:
    try:
        return admitted(asked, gather(caller.tenant.policy_set, caller.key, asked))
    except Exception:  # noqa: BLE001  # the decision meets the same fault, and denies
        return False


def _observe(service: AppContext, decision: Decision, event_id: str) -> None:
    """One decision: one record, one metric, one line."""
    check = decision.check or _WITHOUT_CHECK.get(decision.policy_name, "none")
    service.instruments.decided(decision.decision, check).inc()
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "%s %s by check %s: %s",
            decision.decision,
            event_id,
            check,
            decision.policy_name,
        )
