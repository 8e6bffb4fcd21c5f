"""Check 6: there is an active policy for exactly the call's role. Without one, the default is to
deny."""

from policies.checks.finding import PASSED, CheckFinding, Facts, failed
from policies.retrieval import Retrieval

DEFAULT_DENY = "default_deny"
"""The `policy_name` of a denial because no policy exists for the role."""


def policy_exists(retrieval: Retrieval, facts: Facts) -> CheckFinding:
    if facts.role is None:
        return failed(DEFAULT_DENY, f"no active policy has the role `{retrieval.agent_role}`")
    return PASSED
