"""The probes of `/health/ready`: what keeps this sidecar from working, in words without paths or
secrets. Knows which part to ask for each. Knows no HTTP."""

from sidecar.control.identity import EnrolledIdentity, Identity
from sidecar.live_keys import AgentIdentity
from sidecar.metrics.readiness import Probe
from sidecar.policy_cache.policy_view import PolicyView
from sidecar.policy_cache.replica import Follower
from sidecar.proxy.tunnel.redirect_check import RedirectCheck
from sidecar.spool import Spool
from sidecar.telemetry.standing_denials import agent_key_problem, spool_problem


def probes(
    policies: PolicyView,
    follower: Follower,
    spool: Spool,
    check: RedirectCheck | None,
    identity: Identity,
    agent: AgentIdentity | None,
) -> dict[str, Probe]:
    """The probes by name. `agent` is the one whose key is in a file, None without one."""
    found: dict[str, Probe] = {
        "policy_set": lambda: _policy_set_problem(policies, follower),
        "spool": lambda: spool_problem(spool),
    }
    if isinstance(identity, EnrolledIdentity):
        found = {"enrolment": lambda: identity.problem and identity.problem[1], **found}
    if agent is not None:
        found["agent_key"] = lambda: agent_key_problem(policies, agent)
    if check is not None:
        found["redirect"] = lambda: check.problem
    return found


def _policy_set_problem(policies: PolicyView, follower: Follower) -> str | None:
    # A refused set explains why the one in force becomes stale, so report it first.
    if follower.refused is not None:
        return follower.refused
    if not policies.stale():
        return None
    reason = policies.freshness.reason(policies.monotonic())
    # A key that is refused is the reason and the last failure: once is enough.
    failure = follower.problem
    return reason if failure is None or failure in reason else f"{reason}; {failure}"
