"""Decides on a retrieval and records the decision: the path of every evaluation.

    policy set > facts > session, claimed only after checks 1 to 4 pass > decision > log > answer

The answer leaves after the record is committed (architecture, rule 2). The path reads the database
only for what this process has not seen yet.
"""

import logging

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.decisions.decide import ERROR, decide, may_claim
from control_api.sessions.claim import claim
from policies.checks.finding import Facts
from policies.definitions.model import Session
from policies.evaluate import TENANT_FROZEN, Decision
from policies.retrieval import Retrieval
from policies.trail.record import decision_record

_log = logging.getLogger("sluice.decision")
# The metric's `check` label for denials that no check made; for an ALLOW the label is `none`. Any
# other policy that happens to have one of these names denies by a check.
_WITHOUT_CHECK = {name: name for name in (ERROR, TENANT_FROZEN)}


async def decide_and_record(
    app: AppContext, caller: Caller, retrieval: Retrieval
) -> tuple[Decision, Facts | None, str]:
    """The decision, the facts it was made by, and the id of its event, which is in the log."""
    tenant = caller.tenant
    await tenant.need_for(retrieval)
    session = None if retrieval.session_id is None else await _session(app, caller, retrieval)
    decision, facts = decide(caller, retrieval, session)
    event_id = app.new_id()
    record = decision_record(
        retrieval,
        decision,
        facts,
        event_id=event_id,
        salt=app.entropy(32),
        masking=tenant.policy_set.masks(),
    )
    # Not committed yet. If we die here, the caller gets no answer and no decision took effect.
    await app.log.append(tenant.tenant_id, record)
    _observe(app, decision, event_id)
    return decision, facts, event_id


async def _session(app: AppContext, caller: Caller, retrieval: Retrieval) -> Session | None:
    """The session's current state, claimed by this call if it is the first.

    None if one of the checks before it fails: such a caller must not learn who owns the session.
    """
    assert retrieval.session_id is not None
    tenant = caller.tenant
    if not may_claim(caller, retrieval):
        return None
    known = tenant.sessions.at(retrieval.session_id, app.clock.now())
    if known is not None:
        return known
    row = await claim(
        app,
        tenant,
        retrieval.session_id,
        retrieval.agent_role,
        retrieval.agent_id,
        retrieval.user_id,
    )
    # The policy set may have changed during the claim. Decide by the set in force now.
    await tenant.need_for(retrieval)
    return row.at(app.clock.now())


def _observe(app: AppContext, decision: Decision, event_id: str) -> None:
    """One decision: one record, one metric, one log line."""
    check = decision.check or _WITHOUT_CHECK.get(decision.policy_name, "none")
    app.instruments.decisions.decided(decision.decision, check).inc()
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "%s %s by check %s: %s",
            decision.decision,
            event_id,
            check,
            decision.policy_name,
        )
