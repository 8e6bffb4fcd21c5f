"""Predicts how a retrieval would be decided at this moment, by the policy documents that are here.
Records nothing and claims no session: it serves lists and explanations, and releases no data."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policies.checks.finding import CheckOutcome, Facts
from policies.definitions.model import Key, Sensitivity
from policies.evaluate import TENANT_FROZEN, Decision, admitted, evaluate, gather
from policies.explain import explain
from policies.levels import Levels
from policies.retrieval import Retrieval
from policies.sets.policy_set import documents_for
from sidecar.platform import eager
from sidecar.policy_cache.policy_view import FetchFailed, MissingDocument, PolicyView
from sidecar.sessions import SessionRegistry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecisionPreview:
    """Predicts decisions from what this sidecar knows of callers, sources and sessions."""

    policies: PolicyView
    sessions: SessionRegistry
    configured_level: Callable[[str], Sensitivity | None] = lambda _: None
    """Returns the sensitivity level that the settings give to a source id; None if they give
    none."""
    speaks_for: Callable[[str | None], bool] = lambda _: True
    """Returns whether the sidecar's own key speaks for an agent. None stands for a call that names
    no agent."""
    enrolled: bool = False
    """True if the sidecar got its keys by enrolling. It may then hold the documents of its own
    agent only."""

    async def prepare(self, retrieval: Retrieval, key: Key | None) -> None:
        """Fetch the documents that `permits` needs for a retrieval by this role and agent, from any
        source. If they can't be fetched, `permits` returns False."""
        try:
            if key is not None:
                gather(self.policies.policy_set, key, retrieval)
            return
        except MissingDocument as missing:
            absent = missing
        except Exception:
            log.exception("a check failed: `permits` will come to the same")
            return
        # If it fails, `permits` then misses the same document, and permits nothing.
        with contextlib.suppress(FetchFailed):
            await self.fetch(absent, retrieval)

    async def fetch(self, missing: MissingDocument, retrieval: Retrieval) -> None:
        """Fetch all documents that the retrieval needs in one round trip: one by one, each would
        cost its own. Raises `FetchFailed`."""
        await eager.within_task()
        names = {missing.name, *documents_for(retrieval)}
        await self.policies.document_fetcher.fetch(names)

    def permits(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Return whether `Enforcer.decide` would allow this retrieval now, by the documents that
        are here. Call `prepare` first to fetch those that are missing."""
        facts = self.preview_facts(retrieval, key)
        return facts is not None and allows(self.at_configured_level(retrieval), facts)

    def preview_facts(self, retrieval: Retrieval, key: Key | None) -> Facts | None:
        """Return the facts that `permits` uses, which are the same for every source that this
        caller may name; None if the caller may read nothing."""
        if key is None or self.policies.stale():
            return None
        try:
            return self.facts(retrieval, key) if self.speaks_for(retrieval.agent_id) else None
        except MissingDocument:
            return None  # `prepare` could not fetch it
        except Exception:
            log.exception("a check failed: nothing is shown in a list")
            return None

    def must_claim(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Return whether the control API must be asked for the session first: the retrieval names a
        session that is new here, and the caller may claim it. Raises `MissingDocument`."""
        session_id = retrieval.session_id
        if session_id is None or key is None or self.sessions.holds(session_id):
            return False
        if self.policies.stale():
            return False
        try:
            # INVARIANT: a call that fails checks 1 to 4 claims nothing (`CONTRACT.md`, Sessions).
            # Otherwise an agent could take the sessions of others by naming them first.
            facts = gather(self.policies.policy_set, key, retrieval)
            return admitted(retrieval, facts) and self.speaks_for(retrieval.agent_id)
        except MissingDocument:
            raise
        except Exception:
            log.exception("a check failed: nothing is claimed")
            return False  # the decision fails in the same way, and is recorded

    def explain(self, retrieval: Retrieval, key: Key | None, decision: Decision) -> dict[str, Any]:
        """Explain `decision` in the form that answers show. Call this in the same turn of the event
        loop in which the decision was made, so that the facts are still the same."""
        reached = decision.findings[0].outcome is not CheckOutcome.not_reached
        known = reached or decision.policy_name == TENANT_FROZEN
        facts = self.facts(retrieval, key) if known and key is not None else None
        return explain(self.at_configured_level(retrieval), facts, decision)

    def may_report(self, report_mode: bool) -> bool:
        """Return whether a source in mode `report` forwards denied requests now: False while the
        tenant is frozen."""
        # An administrator who freezes a tenant means that nothing is read.
        return report_mode and not self.policies.policy_set.frozen()

    def at_configured_level(self, retrieval: Retrieval) -> Retrieval:
        """Return the retrieval with its sensitivity raised to the level that the settings give to
        its source."""
        # INVARIANT: a source that the settings know has its level at every way in. The proxy knows
        # it from the request's route, and says so in `levels`.
        if retrieval.levels is not None:
            return retrieval
        configured = self.configured_level(retrieval.source_id)
        if configured is None:
            return retrieval
        levels = Levels(retrieval.sensitivity_level, configured)
        return retrieval._replace(sensitivity_level=levels.effective, levels=levels)

    def facts(self, retrieval: Retrieval, key: Key) -> Facts:
        """Return what the policy set and the sessions say about the caller. Raises
        `MissingDocument`."""
        session_id = retrieval.session_id
        session = None if session_id is None else self.sessions.known(session_id)
        facts = gather(self.policies.policy_set, key, retrieval, session)
        # INVARIANT: a decision is the same with the documents of one agent as with all of the
        # tenant's. If the agent may not act in the role, checks 2 and 3 deny the call, whatever the
        # policies of the role are.
        agent = facts.agent
        if self.enrolled and (agent is None or retrieval.agent_role not in agent.permitted_roles):
            return facts._replace(role=None)
        return facts


def allows(retrieval: Retrieval, facts: Facts) -> bool:
    """Return whether the checks allow a retrieval by these facts. Records nothing, since it only
    filters the names in a list. Pure, so another thread may call it."""
    try:
        return evaluate(retrieval, facts).decision == "ALLOW"
    except Exception:
        log.exception("a check failed: the name is left out of a list")
        return False
