"""The order of the ten checks (`CONTRACT.md`, The ten checks).

A check is a pure function that returns a `CheckFinding`. The first six look at the call as a whole;
the last four look at one policy of the role, a `Clause`.
"""

from policies.checks.agent_id_required import agent_id_required
from policies.checks.agent_permitted import agent_permitted
from policies.checks.binding import binding
from policies.checks.finding import CallCheck, ClauseCheck
from policies.checks.policy_exists import policy_exists
from policies.checks.registry import registry
from policies.checks.role_restriction import role_restriction
from policies.checks.sensitivity import sensitivity
from policies.checks.session import session
from policies.checks.source import source
from policies.checks.task import task

# INVARIANT: identity before session before policy. A later check may rely on an earlier one having
# passed. A caller that fails one of the first four can't claim a session, so a stolen session id
# is useless without the right key and role.
IDENTITY: tuple[CallCheck, ...] = (agent_id_required, registry, role_restriction, binding)
CALL: tuple[CallCheck, ...] = (*IDENTITY, session, policy_exists)
CLAUSE: tuple[ClauseCheck, ...] = (agent_permitted, task, source, sensitivity)

CHECKS: tuple[CallCheck | ClauseCheck, ...] = (*CALL, *CLAUSE)
NAMES: tuple[str, ...] = tuple(check.__name__ for check in CHECKS)
"""The names of the ten checks in order, which are the values that a decision's `check` can take."""
