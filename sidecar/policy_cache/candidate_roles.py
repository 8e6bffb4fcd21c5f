"""The roles of the tenant's candidates, as far as they are here: a decision never waits for one.

A candidate is a policy set beside the active one (`policies.candidates`). What it decides is only
noted, so a document of one that is missing counts as an error, and is fetched in the background for
the decisions after it. Knows neither what a candidate decides nor how a document is fetched.
"""

import asyncio
import logging
from itertools import islice

from policies.sets.policy_set import candidate_name
from policies.sets.role import Role
from sidecar.platform.backoff import Backoff
from sidecar.policy_cache.document_fetcher import FetchFailed, MissingDocument
from sidecar.policy_cache.policy_view import PolicyView

log = logging.getLogger(__name__)

MAX_MISSING = 1000
"""The most documents that wait to be fetched: an agent may name any number of roles."""
MAX_UNREADABLE = 1000
MAX_NAMES = 16
"""The most documents in one read: a decision's own read may have to wait for it to end."""


class CandidateRoles:
    """`candidate_role` is called by decisions; `run` fetches what they found missing."""

    def __init__(self, policies: PolicyView) -> None:
        self._policy_set = policies.policy_set
        self._fetch = policies.document_fetcher.fetch
        self._missing: dict[str, None] = {}
        self._unreadable: dict[str, int] = {}
        self._wanted = asyncio.Event()
        self._backoff = Backoff(0.1, 5.0)

    def candidate_role(self, candidate: str, role: str) -> Role | None:
        """The role by the candidate's policies; None if it has no policy of that role. Raises
        anything if that is not known here."""
        if self._missing or self._unreadable:
            self._raise_known_failure(candidate_name(candidate, role))
        try:
            return self._policy_set.candidate_role(candidate, role)
        except MissingDocument as missing:
            if len(self._missing) < MAX_MISSING:
                self._missing[missing.name] = None
                self._wanted.set()
            raise
        except Exception:
            # Once for each revision of the set: every decision would read the document again.
            name = candidate_name(candidate, role)
            if len(self._unreadable) >= MAX_UNREADABLE:
                self._unreadable.clear()
            self._unreadable[name] = self._policy_set.revision
            log.exception("document `%s` can't be read: the candidate counts as failed", name)
            raise

    async def run(self) -> None:
        """Never returns."""
        size = MAX_NAMES
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._missing:
                names = list(islice(self._missing, size))
                size = min(size * 2, MAX_NAMES)
                try:
                    await self._fetch(names, apart=True)
                except FetchFailed as error:
                    log.warning("documents of candidates can't be fetched: %s", error)
                    # One by one from here: one that is damaged must not hold up the others.
                    size = 1
                    await asyncio.sleep(self._backoff.next_pause())
                else:
                    self._backoff.reset()
                # The next decision that lacks one of them asks for it again.
                for name in names:
                    del self._missing[name]

    def _raise_known_failure(self, name: str) -> None:
        """Raise without another look, which would take as long as the first."""
        if name in self._missing:
            raise MissingDocument(name)
        if self._unreadable.get(name) == self._policy_set.revision:
            raise ValueError(f"document `{name}` can't be read")
