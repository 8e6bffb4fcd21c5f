"""Decides on retrievals and records the decisions: a single one, a batch, or a simulation, which
records nothing and claims no session. Records what followed from a decision (`CONTRACT.md`,
Lineage).

    policy set > facts > session, claimed only after checks 1 to 4 pass > decision > log > answer

An evaluation reads the database only for documents and sessions that are not in this process's
memory.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from prometheus_client import Counter
from pydantic import ConfigDict, Field

from control_api.auth import Caller
from control_api.current_request import ClientLeft, client_left, until_departed
from control_api.decisions.models import (
    AskedRetrieval,
    Batch,
    Evaluated,
    EvaluationRequest,
    Explained,
    Simulated,
    explained,
)
from control_api.edge.answers import Empty
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, RequestModel, Text
from control_api.fleet.isolation import Isolation
from control_api.log import read
from control_api.log.append import Changes, Log
from control_api.metrics.labels import Foreign
from control_api.sessions.operations import Sessions, claim
from control_api.store.queries import session_rows
from control_api.store.store import Store
from policies import batch
from policies.batch import MAX_ITEMS, Semantics
from policies.candidates import differences
from policies.checks.finding import Facts
from policies.checks.order import IDENTITY, NAMES
from policies.definitions.model import Key, Session
from policies.evaluate import TENANT_FROZEN, Decision, admitted, evaluate, gather, refuse
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden
from policies.ground.masking import MaskingTurns
from policies.retrieval import Retrieval
from policies.sets.policy_set import TENANT
from policies.sets.source_levels import at_effective_level
from policies.trail.lineage import ReportedAction, lineage_record, masked_texts
from policies.trail.masked_ahead import masked_ahead, recorded_user
from policies.trail.record import decision_record

if TYPE_CHECKING:
    from control_api.tracing import DecisionTracer


@dataclass(frozen=True, slots=True)
class Decisions:
    """The objects that evaluations work with. `entropy(n)` returns n random bytes; `decided`
    returns the metric's counter for a decision and the check that made it; `tracer` is None without
    traces."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    log: Log
    masking: MaskingTurns
    sessions: Sessions
    isolation: Isolation
    decided: Callable[[str, str], Counter]
    tracer: "DecisionTracer | None"


ERROR = "evaluation_error"
# The metric's `check` label for denials that no check made; for an ALLOW the label is `none`. A
# policy may have one of these names too. If that policy denies, a check has applied it, and the
# label is the name of the check.
_WITHOUT_CHECK = {name: name for name in (ERROR, TENANT_FROZEN)}
_BEFORE_SESSION = NAMES[: len(IDENTITY)]
_log = logging.getLogger("sluice.decision")


def decide(
    caller: Caller, retrieval: Retrieval, session: Session | None
) -> tuple[Decision, Facts | None]:
    """Return the decision and the facts it is based on. The facts are None if gathering them
    failed.

    No exception leaves this function: if deciding fails, the decision is DENY (`CONTRACT.md`, The
    ten checks).
    """
    try:
        facts = gather(caller.tenant.policy_set, caller.key, retrieval, session)
        return evaluate(retrieval, facts), facts
    except Exception:  # noqa: BLE001  # fail closed: whatever went wrong, the answer is DENY
        _log.exception("evaluation failed")
        return refuse(ERROR, "the evaluation failed, and so it is denied"), None


async def decide_and_record(
    decisions: Decisions, caller: Caller, retrieval: Retrieval
) -> tuple[Decision, Facts | None, str]:
    """Decide on the retrieval, and return the decision, the facts it is based on, and the id of its
    event. The event is in the log when this returns."""
    tenant = caller.tenant
    started = decisions.clock.now()
    if not tenant.holds_for(retrieval):
        await tenant.need_for(retrieval)
    [retrieval] = await masked(decisions, caller, (retrieval,))
    known = None
    if retrieval.session_id is not None:
        known = tenant.sessions.at(retrieval.session_id, decisions.clock.now())
    session = known
    if known is None and retrieval.session_id is not None:
        session = await _claimed(decisions, caller, retrieval, retrieval.session_id)
    # No `await` from here to the record: the documents that were loaded can't change in between.
    decision, facts = decide(caller, retrieval, session)
    differing = []
    if facts is not None:
        if known is not None and _denied_before_session(decision):
            facts = facts._replace(session=None)
        retrieval = at_effective_level(retrieval, facts.sources)
        differing = differences(tenant.policy_set, retrieval, facts, decision)
    event_id = decisions.changes.new_id()
    record = decision_record(
        retrieval,
        decision,
        facts,
        event_id=event_id,
        salt=decisions.entropy(32),
        masking=tenant.policy_set.masks(),
        candidates=differing,
    )
    # Not committed yet. If we die here, the caller gets no answer and no decision took effect.
    await decisions.log.append(tenant.tenant_id, record)
    # Committed. If we die here, the log has a decision that the caller never learned of: it can't
    # have acted on it.
    _observe(decisions, decision, event_id)
    if decisions.tracer is not None:
        decisions.tracer.decided(retrieval, decision, event_id, (started, decisions.clock.now()))
    return decision, facts, event_id


async def masked(
    decisions: Decisions, caller: Caller, retrievals: Sequence[Retrieval]
) -> Sequence[Retrieval]:
    """Return the retrievals with personal data in their texts masked, if the tenant's settings say
    so. Texts that were masked before stay as they are. The documents that the retrievals need must
    be loaded, and are still loaded afterwards. Raise `Forbidden` if the caller's key has ended
    meanwhile, and `ClientLeft` if the client has left."""
    tenant = caller.tenant
    if not tenant.policy_set.masks():
        return retrievals
    async with until_departed():
        made = await masked_ahead(decisions.masking, retrievals)
    # INVARIANT: a key that is revoked while a text is masked decides nothing more.
    await caller.require_live(decisions.clock.now())
    if not all(map(tenant.holds_for, made)):
        await tenant.need_for(*made)  # the policy set changed meanwhile
    return made


async def _claimed(
    decisions: Decisions, caller: Caller, retrieval: Retrieval, session_id: str
) -> Session | None:
    """Claim a session that this process does not know, and return its state. Return None if a check
    before the session's fails, so that it may not be claimed."""
    tenant = caller.tenant
    if not _may_claim(caller, retrieval):
        return None
    row = await claim(
        decisions.sessions,
        tenant,
        session_id,
        retrieval.agent_role,
        retrieval.agent_id,
        recorded_user(retrieval) if tenant.policy_set.masks() else retrieval.user_id,
    )
    # The policy set may have changed during the claim. Decide by the set in force now.
    await caller.require_live(decisions.clock.now())
    await tenant.need_for(retrieval)
    return row.at(decisions.clock.now())


def _denied_before_session(decision: Decision) -> bool:
    """Return whether a freeze or one of checks 1 to 4 denied. Neither the response nor the record
    of such a call reveals who owns the session."""
    return decision.decision == "DENY" and (
        decision.check is None or decision.check in _BEFORE_SESSION
    )


def _may_claim(caller: Caller, retrieval: Retrieval) -> bool:
    """Return whether the retrieval passes checks 1 to 4, so that it may claim its session."""
    try:
        return admitted(retrieval, gather(caller.tenant.policy_set, caller.key, retrieval))
    except Exception:  # noqa: BLE001  # `decide` meets the same fault, logs it and denies
        return False


def _observe(decisions: Decisions, decision: Decision, event_id: str) -> None:
    """Count a recorded decision in the metrics, and write a debug log line."""
    check = decision.check or _WITHOUT_CHECK.get(decision.policy_name, "none")
    decisions.decided(decision.decision, check).inc()
    _log.debug("%s %s by check %s: %s", decision.decision, event_id, check, decision.policy_name)


async def evaluate_context(
    decisions: Decisions, caller: Caller, request: Annotated[EvaluationRequest, AskedRetrieval]
) -> Evaluated | Explained:
    """Decide whether an agent may retrieve from a data source; a `DENY` is answered with 200."""
    retrieval = request.retrieval
    decision, facts, event_id = await decide_and_record(decisions, caller, retrieval)
    answer = Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)
    return explained(answer, retrieval, facts, decision) if request.explain else answer


def _without_query(schema: dict[str, Any]) -> None:
    """Remove the fields from the schema that a single evaluation takes from the query: an item of a
    batch has none."""
    for name in AskedRetrieval.in_query:
        del schema["properties"][name]


class Item(AskedRetrieval):
    """One retrieval of a batch."""

    model_config = ConfigDict(json_schema_extra=_without_query)
    in_query: ClassVar[frozenset[str]] = frozenset()


class AskedBatch(RequestModel):
    """Retrievals to decide on in order, and when to stop.

    These fields only describe the body; `parse_batch` reads it, because this path must be fast.
    """

    unique_keys: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {"items": [AskedRetrieval.example], "semantics": "all"}

    items: list[Item] = Field(
        min_length=1, max_length=MAX_ITEMS, description="1 to 100 evaluations."
    )
    semantics: Annotated[
        Semantics,
        says(
            "`all` evaluates every item. `stop_on_deny` and `stop_on_allow` stop after the first "
            "`DENY` or `ALLOW`."
        ),
    ] = "all"

    @classmethod
    def read(cls, values: dict[str, Any]) -> batch.BatchRequest:
        return batch.parse_batch(values)


async def evaluate_batch(
    decisions: Decisions, caller: Caller, request: Annotated[batch.BatchRequest, AskedBatch]
) -> Batch:
    """Decide on several retrievals; each decision has its own audit event."""
    if request.stop_on is None:
        # The items run concurrently, to share one commit. Load all documents and mask all texts
        # first: then no item waits before it claims its session, so claims are made in the batch's
        # order.
        await caller.tenant.need_for(*request.retrievals)
        retrievals = await masked(decisions, caller, request.retrievals)
        answers = await asyncio.gather(*(_evaluate(decisions, caller, each) for each in retrievals))
        return Batch(list(answers))
    # One after the other, since each decision may be the one to stop at.
    results: list[Evaluated] = []
    for retrieval in request.retrievals:
        # What was decided for a client that has left is recorded, and nothing more is decided.
        if client_left():
            raise ClientLeft
        results.append(await _evaluate(decisions, caller, retrieval))
        if results[-1].decision == request.stop_on:
            break
    return Batch(results)


async def _evaluate(decisions: Decisions, caller: Caller, retrieval: Retrieval) -> Evaluated:
    decision, _, event_id = await decide_and_record(decisions, caller, retrieval)
    return Evaluated(decision.decision, decision.policy_name, decision.reason, event_id)


async def simulate_context(
    decisions: Decisions, caller: Caller, request: Annotated[EvaluationRequest, AskedRetrieval]
) -> Simulated | Explained:
    """Tell what an evaluation by this key would answer; nothing is recorded."""
    retrieval = request.retrieval
    await caller.tenant.need_for(retrieval)
    session = await _current_session(decisions, caller, retrieval)
    decision, facts = decide(caller, retrieval, session)
    answer = Simulated(decision.decision, decision.policy_name, decision.reason)
    return explained(answer, retrieval, facts, decision) if request.explain else answer


async def _current_session(
    decisions: Decisions, caller: Caller, retrieval: Retrieval
) -> Session | None:
    """Return the session's current state. None if the retrieval names no session, or one that no
    call has claimed yet."""
    if retrieval.session_id is None:
        return None
    async with decisions.store.reading(caller.tenant_id) as connection:
        row = await session_rows.look_up(connection, caller.tenant_id, retrieval.session_id)
    return None if row is None else row.at(decisions.clock.now())


class NewAction(RequestModel):
    """The downstream action to record (`CONTRACT.md`, Lineage)."""

    example: ClassVar[dict[str, Any]] = {
        "event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
        "action_type": "summary_sent",
        "detail": {"channel": "email"},
        "outcome": "completed",
    }

    event_id: Identifier
    action_type: Identifier
    detail: dict[str, Any] = Field(
        default_factory=dict, description="Any details of the action, as an object."
    )
    outcome: Annotated[Text | None, says("The outcome of the action: any label.")] = None


async def record_lineage(decisions: Decisions, caller: Caller, request: NewAction) -> Empty:
    """Record a downstream action on an audit event of this tenant."""
    tenant_id = caller.tenant_id
    found = await read.event(decisions.store, tenant_id, request.event_id)
    bound, agent_id = caller.key.bound_agent_id, found.event["agent_id"]
    if bound is not None and agent_id != bound:
        await decisions.isolation.record(caller, Foreign.agent, agent_id, "record_lineage")
    _refuse_unbound(caller.key, found.event)
    # The tenant's document says whether to mask personal data in the record.
    await caller.tenant.need((TENANT,))
    # The event's leaf hash ties the action to exactly that entry of the log.
    action = ReportedAction(
        request.event_id, found.leaf_hash, request.action_type, request.detail, request.outcome
    )
    masking = caller.tenant.policy_set.masks()
    masked = None
    if masking:
        async with until_departed():
            masked = await masked_texts(decisions.masking, action)
        await caller.require_live(decisions.clock.now())  # that may have taken seconds
    record = lineage_record(
        action, record_id=decisions.changes.new_id(), salt=decisions.entropy(32), masked=masked
    )
    await decisions.log.append(tenant_id, record)
    return Empty()


def _refuse_unbound(key: Key, event: dict[str, Any]) -> None:
    """Raise `Forbidden` if the key's binding excludes the event's agent or role (`CONTRACT.md`,
    Lineage)."""
    if key.bound_agent_id is not None and event["agent_id"] != key.bound_agent_id:
        raise Forbidden(
            f"the key is bound to agent `{key.bound_agent_id}`, not to the event's agent"
        )
    if key.permitted_roles and event["agent_role"] not in key.permitted_roles:
        raise Forbidden("the key's roles do not include the event's")
