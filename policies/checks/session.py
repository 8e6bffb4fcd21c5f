"""Check 5: the session is active and belongs to the caller (`CONTRACT.md`, The ten checks,
Sessions).

Neither claims nor expires a session: `facts.session` is its state at the time of the decision.
"""

from policies.checks.finding import PASSED, SKIPPED, CheckFinding, Facts, failed
from policies.retrieval import Retrieval


def session(retrieval: Retrieval, facts: Facts) -> CheckFinding:
    if retrieval.session_id is None:
        return SKIPPED
    known = facts.session
    if known is None:  # never claimed: this call would own it
        return PASSED
    if known.state == "revoked":
        return failed("session_revoked", f"session `{known.session_id}` was revoked")
    if known.state == "expired":
        return failed("session_expired", f"session `{known.session_id}` has expired")
    if (known.agent_role, known.agent_id) != (retrieval.agent_role, retrieval.agent_id):
        return failed(
            "session_agent_mismatch",
            f"session `{known.session_id}` belongs to {_owner(known.agent_role, known.agent_id)}, "
            f"and the call is by {_owner(retrieval.agent_role, retrieval.agent_id)}",
        )
    return PASSED


def _owner(role: str, agent_id: str | None) -> str:
    return f"role `{role}` without an agent id" if agent_id is None else f"`{agent_id}` as `{role}`"
