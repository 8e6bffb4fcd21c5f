"""Decides on a retrieval by the tenant's policy set. Records nothing.

A fault while deciding denies: no exception leaves this module (contract, section 3).
"""

import logging

from control_api.auth.principal import Caller
from policies.checks.finding import Facts
from policies.definitions.model import Session
from policies.evaluate import Decision, admitted, evaluate, gather, refuse
from policies.retrieval import Retrieval

ERROR = "evaluation_error"
_log = logging.getLogger("sluice.decision")


def decide(
    caller: Caller, retrieval: Retrieval, session: Session | None
) -> tuple[Decision, Facts | None]:
    """The decision and the facts it was made by; the facts are None if gathering them failed."""
    try:
        facts = gather(caller.tenant.policy_set, caller.key, retrieval)
        if session is not None:
            facts = facts._replace(session=session)
        return evaluate(retrieval, facts), facts
    except Exception:  # noqa: BLE001  # fail closed: whatever went wrong, the answer is DENY
        _log.exception("evaluation failed")
        return refuse(ERROR, "the evaluation failed, and so it is denied"), None


def may_claim(caller: Caller, retrieval: Retrieval) -> bool:
    """Whether the retrieval passes checks 1 to 4, so that it may claim its session."""
    try:
        return admitted(retrieval, gather(caller.tenant.policy_set, caller.key, retrieval))
    except Exception:  # noqa: BLE001  # `decide` meets the same fault, logs it and denies
        return False
