"""Finds the subjects, resources or actions for which a question would be allowed.

    candidates   agents of the registry; sources that policies and settings name; actions of the
                 settings
    judgement    for each candidate, the question is mapped as in an evaluation, and goes through
                 the ten checks, without a session; nothing is recorded
    complete     all of it by one revision of the policy set, or the search fails

A question that names no role is judged in each role that the subject may claim. Knows neither pages
nor HTTP.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import orjson

from policies.definitions.model import Agent, Key
from policies.ground.errors import Unavailable
from policies.sets.policy_set import NoPolicySet, role_name
from policies.sets.role import Role
from sidecar.api.route import StartAgain
from sidecar.authzen.mapping import Mapper, proposed_ids
from sidecar.authzen.question import Action, Entity, Question
from sidecar.authzen.search.claimants import (
    Caller,
    Claimant,
    PacedSearch,
    SearchPace,
    claimant_of,
    claimed_role,
    readable_role,
)
from sidecar.enforce import Enforcer
from sidecar.platform import eager
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.policy_cache.policy_view import (
    AgentDocuments,
    FetchFailed,
    ListingInterrupted,
    MissingDocument,
)
from sidecar.unmapped import Unmapped

log = logging.getLogger(__name__)


class Found(NamedTuple):
    """The results of a search: ids or names, in order and without repeats. A search for resources
    also has the patterns of sources that can't be listed one by one."""

    names: list[str]
    patterns: Sequence[str] = ()


class Searches:
    """The three kinds of search. `source_ids` are the sources that the sidecar's settings name."""

    def __init__(
        self,
        enforcer: Enforcer,
        mapper: Mapper,
        agents: AgentDocuments,
        source_ids: Iterable[str],
        pace: SearchPace,
    ) -> None:
        self._enforcer = enforcer
        self._policies = enforcer.policies
        self._policy_set = enforcer.policies.policy_set
        self._mapper = mapper
        self._agents = agents
        self._source_ids = frozenset(source_ids)
        self._pace = pace
        self.action_names = tuple(dict.fromkeys(rule.name for rule in mapper.settings.actions))

    async def subjects(self, question: Question, key: Key) -> Found:
        """Return the approved agents for which the question would be allowed. The id of the
        question's subject is ignored.

        This method, `resources` and `actions` raise `Unavailable` if the answer would not be
        complete, `StartAgain` if the policy set changed meanwhile, and `MissingDocument`.
        """
        if question.subject.type not in self._mapper.settings.subject_types:
            return Found([])
        found: list[str] = []
        # Listing waits for things with time limits, which need a task.
        await eager.within_task()
        with self._pace.search() as paced:
            caller = self._begin(key)
            async with aclosing(self._claimants(question, caller, paced)) as claimants:
                async for agent, claimant in claimants:
                    subject = question.subject._replace(id=agent.agent_id)
                    if self._allows(claimant, question._replace(subject=subject)):
                        found.append(agent.agent_id)
                    await paced.rest()
            await self._end(caller, paced)
        return Found(sorted(found))

    async def resources(self, question: Question, key: Key) -> Found:
        """Return the ids of the resources for which the question would be allowed. The id of the
        question's resource is ignored."""
        with self._pace.search() as paced:
            caller = self._begin(key)
            claimant = self._claimant(question, caller)
            if claimant is None:
                return Found([])
            found: set[str] = set()
            for source_id in self._source_ids.union(claimant.named_sources()):
                for each in self._mapped_back(source_id, question.resource):
                    if self._allows(claimant, question._replace(resource=each)):
                        found.add(each.id)
                    await paced.rest()
                await paced.rest()
            await self._end(caller, paced)
        return Found(sorted(found), claimant.patterns())

    async def actions(self, question: Question, key: Key) -> Found:
        """Return the names of the actions for which the question would be allowed, in the order of
        the settings. The question's own action is ignored."""
        with self._pace.search() as paced:
            caller = self._begin(key)
            claimant = self._claimant(question, caller)
            if claimant is None:
                return Found([])
            found = []
            for name in self.action_names:
                if self._allows(claimant, question._replace(action=Action(name, {}))):
                    found.append(name)
                await paced.rest()
            await self._end(caller, paced)
        return Found(found)

    def _begin(self, key: Key) -> Caller:
        self._require_deciding()
        try:
            return Caller(
                key,
                self._policy_set.settings(),
                self._policy_set.revision,
                {},
                self._enforcer.preview.speaks_for,
                self._policy_set.sources(),
                self._enforcer.preview.at_configured_level,
            )
        except (NoPolicySet, CacheDamaged, KeyError, TypeError, ValueError) as error:
            raise Unavailable(f"the policy set can't be read: {error}") from error

    async def _end(self, caller: Caller, paced: PacedSearch) -> None:
        await paced.rest(last=True)
        self._require_deciding()
        # INVARIANT: all candidates were judged by one policy set, the one in force now. Otherwise
        # the answer could hold what was not allowed at any time.
        if self._policy_set.revision != caller.revision:
            raise StartAgain(StartAgain.__doc__)

    def _require_deciding(self) -> None:
        # Every evaluation is denied now, for a reason that concerns no candidate.
        if (denial := self._enforcer.denial_of_everything()) is not None:
            raise Unavailable(f"nothing can be allowed at the moment: {denial[1]}")
        if self._policies.stale():
            raise Unavailable(self._policies.freshness.reason(self._policies.monotonic()))

    def _allows(self, claimant: Claimant, question: Question) -> bool:
        return claimant.allowed(question, self._mapper, self._policy_set)

    def _claimant(self, question: Question, caller: Caller) -> Claimant | None:
        """Return the claimant on whose behalf the question is asked; None if no evaluation of the
        question could be mapped to a retrieval."""
        try:
            return claimant_of(question, caller, self._mapper, self._policy_set)
        except Unmapped:
            return None
        except (NoPolicySet, CacheDamaged) as error:
            raise Unavailable(f"the policy set can't be read: {error}") from error

    def _mapped_back(self, source_id: str, resource: Entity) -> Iterable[Entity]:
        """Yield the resources of the type of `resource` that the rules map to this source."""
        for id_ in dict.fromkeys(
            proposed_ids(source_id, resource.type, self._mapper.settings.resources)
        ):
            candidate = resource._replace(id=id_)
            try:
                if self._mapper.target(candidate).source_id == source_id:
                    yield candidate
            except Unmapped:
                continue

    async def _claimants(
        self, question: Question, caller: Caller, paced: PacedSearch
    ) -> AsyncGenerator[tuple[Agent, Claimant], None]:
        """Yield every approved agent of the tenant, with its claimant."""
        try:
            claimed = claimed_role(question, self._mapper)
        except Unmapped:
            return
        roles: dict[str, Role | None] = {}
        try:
            async with aclosing(self._agents.read()) as parts:
                async for part in parts:
                    agents = list(_approved(part))
                    named = () if claimed is None else (claimed,)
                    await self._add_roles(
                        roles, {name for each in agents for name in named or each.permitted_roles}
                    )
                    for agent in agents:
                        own = {name: roles[name] for name in named or agent.permitted_roles}
                        yield agent, Claimant(caller, agent, own, claims=not named)
                    await paced.rest()
        except ListingInterrupted as error:
            raise StartAgain(str(error)) from error
        except (FetchFailed, CacheDamaged, NoPolicySet) as error:
            raise Unavailable(f"the policy set can't be read as a whole: {error}") from error

    async def _add_roles(self, roles: dict[str, Role | None], names: Iterable[str]) -> None:
        missing = []
        new = [name for name in names if name not in roles]
        for name in new:
            try:
                roles[name] = readable_role(name, self._policy_set)
            except MissingDocument:
                missing.append(name)
        if missing:
            fetch = self._policies.document_fetcher.fetch
            await fetch([role_name(name) for name in missing])
            for name in missing:
                roles[name] = readable_role(name, self._policy_set)


def _approved(part: Sequence[bytes]) -> Iterable[Agent]:
    for body in part:
        try:
            agent = Agent.from_wire(orjson.loads(body))
        except (KeyError, TypeError, ValueError):
            # A document of a later version: every evaluation by this agent is denied.
            log.exception("an agent's document can't be read: it is not found by searches")
            continue
        if agent.status == "approved":
            yield agent
