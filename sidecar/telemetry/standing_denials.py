"""Detects why this sidecar denies every request. Reports the reason to the probes of
`/health/ready` and in the log, and the log says when the state ends. Each such denial is recorded
if possible, but no single one says that all others are denied too. The texts show no path and no
secret."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from math import inf

from policies.ground.canonical import rfc3339
from policies.ground.process.outage_logger import PAUSE_SECONDS as CAUSE_SECONDS
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.sets.policy_set import NoPolicySet, PolicySet
from sidecar.control.identity import EnrolledIdentity, Identity
from sidecar.live_keys import AgentIdentity
from sidecar.metrics.readiness import Probe, Readiness
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.policy_cache.policy_view import MissingDocument, PolicyView
from sidecar.policy_cache.replica import Follower
from sidecar.proxy.tunnel.redirect_check import RedirectCheck
from sidecar.spool import Spool, State

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""The most seconds from the beginning of such a state to its line in the log."""
PAUSE_SECONDS = 0.1
"""The minimum seconds between two looks at the states, however often the policy set changes."""
START_SECONDS = 5.0
"""The seconds after a start before a missing policy set or spool is reported."""


class _NotKnown(Exception):
    """whether the state has begun or ended can't be known at the moment"""


class StandingDenials:
    """The loop that logs when everything is denied, and when that ends. `agent` is the agent behind
    the proxy's ports; None if there is none, or if it enrols, which is reported separately. `spool`
    is None if no denial follows from the spool. `changed` is called when a state begins or ends,
    and when a part becomes ready, or is not ready any more."""

    def __init__(
        self,
        policies: PolicyView,
        follower: Follower,
        spool: Spool | None,
        agent: AgentIdentity | None,
        readiness: Readiness,
        changed: Callable[[], None],
    ) -> None:
        self._policies = policies
        self._follower = follower
        self._readiness = readiness
        self._not_ready: set[str] = set()
        self._changed = changed
        self._told_from = policies.monotonic() + START_SECONDS
        self._wanted = asyncio.Event()
        self._states: list[tuple[Probe, RepeatingOutageLogger, float]] = []
        self._add(
            self._stale,
            "every request is denied with `policy_set_stale`",
            "the policy set is confirmed again, and requests are decided by it",
        )
        self._add(
            lambda: frozen_problem(policies.policy_set),
            "every request is denied with `tenant_frozen`",
            "the tenant is not frozen any more, and requests are decided",
        )
        if spool is not None:
            self._add(
                lambda: self._unless_starting(spool_problem(spool)),
                "every retrieval is denied with `audit_unavailable`, or is answered 503 where not "
                "even a denial can be recorded",
                "the spool takes records, and retrievals are decided",
            )
        if agent is not None:
            self._add(
                lambda: _agent_key_problem(policies, agent, named=True),
                "every proxied request is denied for the agent's key",
                "the agent's key is valid, and proxied requests are decided",
                # An operator may try one wrong key after the other: each cause is logged at once.
                pause=0.0,
            )
            self._add(
                lambda: agent_role_problem(policies, agent),
                "every proxied request is denied for the agent's role",
                "the agent may act in its role, and proxied requests are decided",
            )

    def wake(self) -> None:
        """Look at the states soon, because the policy set has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Look at the states regularly, until cancelled."""
        while True:
            # Cleared before the look: what changes during it gets another one.
            self._wanted.clear()
            self.look()
            await asyncio.sleep(PAUSE_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS - PAUSE_SECONDS):
                    await self._wanted.wait()

    def look(self) -> None:
        """Log which of the states in which everything is denied have begun, ended or changed their
        cause since the last call."""
        for probe, state, pause in self._states:
            before = state.problem
            try:
                problem = probe()
            except _NotKnown:
                continue
            if problem is not None:
                state.failing(problem, pause)
            elif before is not None:
                state.recovered()
            if (problem is None) != (before is None):
                self._changed()
        # After a restart nothing changes in the policy set when it is confirmed, and no state ends
        # that was not told.
        not_ready = {*self._readiness.problems()}
        if not_ready != self._not_ready:
            self._not_ready = not_ready
            self._changed()

    def _add(self, probe: Probe, what: str, back: str, pause: float = CAUSE_SECONDS) -> None:
        logger = RepeatingOutageLogger(log, what, back, self._policies.monotonic)
        self._states.append((probe, logger, pause))

    def _stale(self) -> str | None:
        freshness = self._policies.freshness
        if not self._policies.stale():
            return None
        if freshness.expired:
            # Expired at any age, for instance because the sidecar's key was refused.
            return self._unless_starting(freshness.expired)
        # Without the age, which would change the text each second.
        why = f"no policy set was confirmed within {freshness.limit:g} s"
        if freshness.age() == inf:
            why = "no policy set is confirmed yet since the start"
        cause = self._follower.refused or self._follower.problem
        return self._unless_starting(f"{why}: {cause}" if cause else why)

    def _unless_starting(self, problem: str | None) -> str | None:
        return None if self._policies.monotonic() < self._told_from else problem


def frozen_since(policy_set: PolicySet) -> int | None:
    """Return the time at which the tenant was frozen, in microseconds; None if it is not frozen, or
    if the time is not known."""
    try:
        return policy_set.settings().frozen_at
    except Exception:  # noqa: BLE001  # a document of a later format can raise anything
        # Each denial then says `evaluation_error`, or that there is no policy set.
        return None


def frozen_problem(policy_set: PolicySet) -> str | None:
    """Return the reason why everything is denied, if that is because the tenant is frozen; None if
    it is not frozen."""
    since = frozen_since(policy_set)
    if since is None:
        return None
    return f"the tenant is frozen since {rfc3339(since)}; `sluice freeze --lift` ends that"


def spool_problem(spool: Spool) -> str | None:
    """Return the reason why nothing can be allowed, or not even denied, because there is no place
    for a record. None if there is a place."""
    # Anyone may read this, so it names the setting and not the path; the log has the path.
    where = "" if spool.disk_fault is None else f": {spool.disk_fault} at `spool.dir`"
    if spool.refusal is not None:
        return f"{spool.refusal}{where}"
    if spool.state is not State.OPEN:
        # It is full either way: by its disk, or by its limit.
        why = where or f": `spool.max_bytes` is reached: {spool.occupied_by}"
        return f"the spool is full, and nothing can be allowed{why}"
    return None


def agent_key_problem(policies: PolicyView, agent: AgentIdentity) -> str | None:
    """Return the reason why every proxied request is denied because of the agent's key; None if the
    key is valid, or if that can't be known, which other probes explain."""
    try:
        return _agent_key_problem(policies, agent)
    except _NotKnown:
        return None


def _agent_key_problem(
    policies: PolicyView, agent: AgentIdentity, *, named: bool = False
) -> str | None:
    """Return the reason like `agent_key_problem`, but raise `_NotKnown` if it can't be known.
    `named` adds which key it is, and whose: the log may say that, but not `/health/ready`, which
    anyone may read."""
    if policies.stale():
        raise _NotKnown
    try:
        fault = agent.fault_of(agent.digest)
    except (NoPolicySet, MissingDocument, CacheDamaged) as error:
        raise _NotKnown from error
    if fault is None:
        return None
    key = "the key in `agent.key_file`" if agent.file_fault is None else "the agent's key in use"
    file = "" if agent.file_fault is None else f", and {agent.file_fault}"
    owner = f", it is {fault.owner}" if named and fault.owner else ""
    return f"{key} {fault.why} (`{fault.denial}`){owner}{file}: write a valid one into that file"


def agent_role_problem(policies: PolicyView, agent: AgentIdentity) -> str | None:
    """Return the reason why every proxied request is denied because of the role in the settings;
    None if the agent may act in that role, or if that can't be known, which other probes
    explain."""
    if policies.stale():
        return None
    try:
        fault = agent.role_fault()
    except (NoPolicySet, MissingDocument, CacheDamaged):
        return None
    if fault is None:
        return None
    return f"{fault} (`role_not_permitted`): correct it in the settings, and restart the sidecar"


def probes(
    policies: PolicyView,
    follower: Follower,
    spool: Spool,
    check: RedirectCheck | None,
    identity: Identity,
    agent: AgentIdentity | None,
) -> dict[str, Probe]:
    """Return the probes of readiness, by name. `agent` is the agent whose key is in a file; None if
    there is no such agent."""
    found: dict[str, Probe] = {
        "policy_set": lambda: _policy_set_problem(policies, follower),
        "spool": lambda: spool_problem(spool),
    }
    if isinstance(identity, EnrolledIdentity):
        found = {"enrolment": lambda: identity.problem and identity.problem[1], **found}
    if agent is not None:
        found["agent_key"] = lambda: agent_key_problem(policies, agent)
        found["agent_role"] = lambda: agent_role_problem(policies, agent)
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
