"""Decides on retrievals and records the decisions, for every use case that evaluates.

    policy set > facts > session, claimed only after checks 1 to 4 pass > decision > log > answer

An evaluation reads the database only for documents and sessions that this process does not have.
"""

import logging
from collections.abc import Sequence

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import until_departed
from control_api.domain.sessions import claim
from policies.candidates import differences
from policies.checks.finding import Facts
from policies.checks.order import IDENTITY, NAMES
from policies.definitions.model import Session
from policies.evaluate import TENANT_FROZEN, Decision, admitted, evaluate, gather, refuse
from policies.retrieval import Retrieval
from policies.sets.source_levels import raised
from policies.trail.masked_ahead import masked_ahead, recorded_user
from policies.trail.record import decision_record

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
    """The decision and the facts it is based on; the facts are None if gathering them failed.

    No exception leaves this function: if deciding fails, the answer is DENY (contract, section 3).
    """
    try:
        facts = gather(caller.tenant.policy_set, caller.key, retrieval, session)
        return evaluate(retrieval, facts), facts
    except Exception:  # noqa: BLE001  # fail closed: whatever went wrong, the answer is DENY
        _log.exception("evaluation failed")
        return refuse(ERROR, "the evaluation failed, and so it is denied"), None


async def decide_and_record(
    app: AppContext, caller: Caller, retrieval: Retrieval
) -> tuple[Decision, Facts | None, str]:
    """The decision, the facts it is based on, and the id of its event, which is in the log."""
    tenant = caller.tenant
    started = app.clock.now()
    if not tenant.holds_for(retrieval):
        await tenant.need_for(retrieval)
    [retrieval] = await masked(app, caller, (retrieval,))
    known = None
    if retrieval.session_id is not None:
        known = tenant.sessions.at(retrieval.session_id, app.clock.now())
    session = known
    if known is None and retrieval.session_id is not None:
        session = await _claimed(app, caller, retrieval, retrieval.session_id)
    # No `await` from here to the record: the documents that were loaded can't change in between.
    decision, facts = decide(caller, retrieval, session)
    if known is not None and facts is not None and _denied_before_session(decision):
        facts = facts._replace(session=None)
    if facts is not None:
        retrieval = raised(retrieval, facts.sources)
    differing = [] if facts is None else differences(tenant.policy_set, retrieval, facts, decision)
    event_id = app.new_id()
    record = decision_record(
        retrieval,
        decision,
        facts,
        event_id=event_id,
        salt=app.entropy(32),
        masking=tenant.policy_set.masks(),
        candidates=differing,
    )
    # Not committed yet. If we die here, the caller gets no answer and no decision took effect.
    await app.log.append(tenant.tenant_id, record)
    # Committed. If we die here, the log has a decision that the caller never learned of: it can't
    # have acted on it.
    _observe(app, decision, event_id)
    if app.tracer is not None:
        app.tracer.decided(retrieval, decision, event_id, (started, app.clock.now()))
    return decision, facts, event_id


async def masked(
    app: AppContext, caller: Caller, retrievals: Sequence[Retrieval]
) -> Sequence[Retrieval]:
    """The retrievals with their texts masked, if the tenant masks; they may have been already. The
    documents that they need must have been loaded, and still are. Raises `Forbidden` if the
    caller's key has ended meanwhile, `ClientLeft` if the client has left."""
    tenant = caller.tenant
    if not tenant.policy_set.masks():
        return retrievals
    async with until_departed():
        made = await masked_ahead(app.masking, retrievals)
    # INVARIANT: a key that is revoked while a text is masked decides nothing more.
    await caller.require_live(app.clock.now())
    if not all(map(tenant.holds_for, made)):
        await tenant.need_for(*made)  # the policy set changed meanwhile
    return made


async def _claimed(
    app: AppContext, caller: Caller, retrieval: Retrieval, session_id: str
) -> Session | None:
    """The state of a session that is not known here; the first call claims it. None if a check
    before the session's fails."""
    tenant = caller.tenant
    if not _may_claim(caller, retrieval):
        return None
    row = await claim(
        app,
        tenant,
        session_id,
        retrieval.agent_role,
        retrieval.agent_id,
        recorded_user(retrieval) if tenant.policy_set.masks() else retrieval.user_id,
    )
    # The policy set may have changed during the claim. Decide by the set in force now.
    await caller.require_live(app.clock.now())
    await tenant.need_for(retrieval)
    return row.at(app.clock.now())


def _denied_before_session(decision: Decision) -> bool:
    """Whether a freeze or one of checks 1 to 4 denied. Neither answer nor record of such a call
    tells who owns the session."""
    return decision.decision == "DENY" and (
        decision.check is None or decision.check in _BEFORE_SESSION
    )


def _may_claim(caller: Caller, retrieval: Retrieval) -> bool:
    """Whether the retrieval passes checks 1 to 4, so that it may claim its session."""
    try:
        return admitted(retrieval, gather(caller.tenant.policy_set, caller.key, retrieval))
    except Exception:  # noqa: BLE001  # `decide` meets the same fault, logs it and denies
        return False


def _observe(app: AppContext, decision: Decision, event_id: str) -> None:
    """Count a recorded decision, and log it."""
    check = decision.check or _WITHOUT_CHECK.get(decision.policy_name, "none")
    app.instruments.decisions.decided(decision.decision, check).inc()
    _log.debug("%s %s by check %s: %s", decision.decision, event_id, check, decision.policy_name)
