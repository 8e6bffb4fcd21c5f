"""Defines the callers that a search judges: an agent, or a call without an agent, in each role that
it may claim.

Also keeps searches from slowing decisions: they run on the same event loop, and a search may judge
thousands of candidates. A search works in slices of a fraction of a millisecond. While decisions
are made, all searches together get a small share of the time; while none are, a search only yields
between its slices.
"""

import asyncio
import logging
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from policies.checks.finding import Facts
from policies.definitions.model import Agent, Key, TenantSettings
from policies.definitions.wildcard import is_pattern
from policies.evaluate import admitted, evaluate_admitted
from policies.ground.canonical import identifier_fault
from policies.ground.errors import Unavailable
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet
from policies.sets.role import Role
from policies.sets.source_levels import SourceLevels, at_effective_level
from sidecar.authzen.mapping import Mapper
from sidecar.authzen.question import Question
from sidecar.unmapped import Unmapped

SHARE = 0.03
"""The share of the time that all searches together get while decisions are made. Low enough that
decisions keep nine tenths of the time, with room to spare."""
SLICE_SECONDS = 0.0002
BURST_SECONDS = 0.2
"""The most seconds of unused search time that are saved up, so that a small search after a pause
need not wait."""
FIXED_SECONDS = 0.0005
"""The seconds counted for each search besides its slices: for reading the request and writing the
answer."""
BUSY_SECONDS = 0.1
"""The seconds after a decision for which the sidecar counts as busy with decisions."""
MAX_SEARCHES = 16


class SearchPace:
    """Divides the time among decisions and all searches, which share this object. `decided` returns
    the number of decisions so far; `monotonic` is the clock."""

    def __init__(self, monotonic: Callable[[], float], decided: Callable[[], int]) -> None:
        self._monotonic = monotonic
        self._decided = decided
        self._count = decided()
        self._busy_until = 0.0
        self._paid_until = 0.0
        self._under_way = 0

    @contextmanager
    def search(self) -> Iterator["PacedSearch"]:
        """Begin one search, which ends with the block. Raises `Unavailable` if too many searches
        are running."""
        if self._under_way >= MAX_SEARCHES:
            raise Unavailable(f"{MAX_SEARCHES} searches are under way; try again in a second")
        self._under_way += 1
        try:
            yield PacedSearch(self, self._monotonic)
        finally:
            self._under_way -= 1

    async def pay(self, used: float) -> None:
        """Wait until other work has had its share of time, after `used` seconds of searching."""
        # Decisions that wait in the loop are made now, and counted below.
        await asyncio.sleep(0)
        now = self._monotonic()
        count = self._decided()
        if count != self._count:
            self._count, self._busy_until = count, now + BUSY_SECONDS
        self._paid_until = max(self._paid_until, now - BURST_SECONDS) + used / SHARE
        if now >= self._busy_until:
            self._paid_until = min(self._paid_until, now)
        elif self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)


class PacedSearch:
    """One search, divided into slices. Its time counts from when this object is made."""

    def __init__(self, pace: SearchPace, monotonic: Callable[[], float]) -> None:
        self._pace = pace
        self._monotonic = monotonic
        self._resumed = monotonic() - FIXED_SECONDS

    async def rest(self, *, last: bool = False) -> None:
        """Wait for the search's next slice if the current one is used up; otherwise return at once.
        Call this after each small step, and with `last` at the end."""
        used = self._monotonic() - self._resumed
        if last or used >= SLICE_SECONDS:
            await self._pace.pay(used)
            self._resumed = self._monotonic()


log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The caller of a search, with the facts that all its claimants share: the key of the request,
    and the tenant's settings and levels at one revision of the policy set. `answers` remembers the
    policies' answers within this search. `speaks_for` returns whether the sidecar's own key speaks
    for an agent, and `at_configured_level` raises a retrieval to the level in the sidecar's
    settings."""

    key: Key
    settings: TenantSettings
    revision: int
    answers: dict[tuple[object, ...], bool]
    speaks_for: Callable[[str | None], bool]
    sources: SourceLevels | None
    at_configured_level: Callable[[Retrieval], Retrieval]


class Claimant(NamedTuple):
    """One agent that a search judges, with the policies of the roles that it may claim. `agent` is
    None for a call without an agent. `claims` is False if the question itself names the role."""

    caller: Caller
    agent: Agent | None
    roles: Mapping[str, Role | None]
    claims: bool

    def allowed(self, question: Question, mapper: Mapper, policy_set: PolicySet) -> bool:
        """Return whether an evaluation of the question would be allowed in one of the roles. The
        question's session is ignored."""
        for role in self.roles:
            asked = _in_role(question, role) if self.claims else question
            try:
                retrieval = mapper.retrieval(asked, self.caller.key, policy_set)
            except Unmapped:
                continue
            retrieval = self.caller.at_configured_level(retrieval._replace(session_id=None))
            if self._passes(at_effective_level(retrieval, self.caller.sources), self._facts(role)):
                return True
        return False

    def _passes(self, retrieval: Retrieval, facts: Facts) -> bool:
        """Return whether the ten checks pass. The checks of the caller run for each claimant; those
        of the policies run only once for all claimants that the policies treat alike."""
        role = facts.role
        # Without a session, check 5 is skipped.
        if role is None or not admitted(retrieval, facts):
            return False
        if not self.caller.speaks_for(retrieval.agent_id):
            return False  # every evaluation of it is denied
        named = any(clause.admits is not None for clause in role.clauses)
        question = (
            role.name,
            retrieval.source_id,
            retrieval.sensitivity_level,
            retrieval.task_type,
            retrieval.agent_id if named else None,
        )
        answers = self.caller.answers
        if question not in answers:
            answers[question] = evaluate_admitted(retrieval, role).decision == "ALLOW"
        return answers[question]

    def named_sources(self) -> set[str]:
        """Return the sources that the policies of the roles allow by name, without wildcards. The
        claimant may still be denied some of them."""
        clauses = [clause for role in self.roles.values() if role for clause in role.clauses]
        return {e for clause in clauses for e in clause.allowed_sources if not is_pattern(e)}

    def patterns(self) -> list[str]:
        """Return the source patterns with wildcards in the policies that apply to the claimant."""
        agent_id = None if self.agent is None else self.agent.agent_id
        found: set[str] = set()
        if not self.caller.speaks_for(agent_id):
            return []
        for name, role in self.roles.items():
            # INVARIANT: no policy of a role in which this key may not act, and none that admits
            # only other agents, is shown. Checks 1 to 4 ask who calls, not for what.
            probe = Retrieval(name, "", "", "low", agent_id=agent_id)
            if role is None or not admitted(probe, self._facts(name)):
                continue
            for clause in role.clauses:
                if clause.admits is None or (agent_id is not None and clause.admits(agent_id)):
                    found.update(filter(is_pattern, clause.allowed_sources))
        return sorted(found)

    def _facts(self, role: str) -> Facts:
        key, settings, revision = self.caller[:3]
        return Facts(
            settings, key, self.agent, None, self.roles[role], revision, self.caller.sources
        )


def claimed_role(question: Question, mapper: Mapper) -> str | None:
    """Return the role that the question names; None if it names none. Raises `Unmapped` for a name
    that no role can have."""
    claimed: Any = mapper.claimed_role(question.subject, question.context)
    if claimed is not None and (fault := identifier_fault(claimed)):
        raise Unmapped(f"agent_role: {fault}")
    return None if claimed is None else str(claimed)


def claimant_of(
    question: Question, caller: Caller, mapper: Mapper, policy_set: PolicySet
) -> Claimant:
    """Return the claimant on whose behalf the question is asked. Raises `Unmapped`, and
    `MissingDocument`."""
    claimed = claimed_role(question, mapper)
    agent_id = mapper.agent_id(question.subject, question.context, caller.key)
    try:
        agent = None if agent_id is None else policy_set.agent(agent_id)
    except (KeyError, TypeError, ValueError) as error:
        # A document of a later version: every evaluation by this agent is denied.
        log.exception("the document of agent `%s` can't be read", agent_id)
        raise Unmapped("the agent's document can't be read") from error
    roles = caller.key.permitted_roles if agent is None else agent.permitted_roles
    names = roles if claimed is None else (claimed,)
    found = {name: readable_role(name, policy_set) for name in names}
    return Claimant(caller, agent, found, claims=claimed is None)


def readable_role(name: str, policy_set: PolicySet) -> Role | None:
    """Return the role; None if it has no policy or if its document can't be read, because every
    evaluation in that role is then denied. Raises `MissingDocument`, `NoPolicySet` and
    `CacheDamaged`."""
    try:
        return policy_set.role(name)
    except (KeyError, TypeError, ValueError):
        # A document of a later version can lack what this one expects.
        log.exception("the policies of role `%s` can't be read: nothing is found by them", name)
        return None


def _in_role(question: Question, role: str) -> Question:
    subject = question.subject
    # The first place that a role is taken from. No copy: the properties may be a megabyte.
    properties = ChainMap({"agent_role": role}, cast(MutableMapping[str, Any], subject.properties))
    return question._replace(subject=subject._replace(properties=properties))
