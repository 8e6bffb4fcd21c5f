"""Gives decisions their view of the policy set: its documents, its age, and the means to fetch
missing documents.

A decision reads the documents that it names. A search has to see those of all agents, so a listing
is complete at one revision, or it fails. No decision waits for the documents of a candidate policy
(`policies.candidates`): a missing one counts as an error, and is fetched for later.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from policies.sets.policy_set import PolicySet, candidate_name
from policies.sets.role import Role
from sidecar.platform.backoff import Backoff
from sidecar.policy_cache.freshness import Freshness

AGENT_PREFIX = "agent/"

log = logging.getLogger(__name__)

MAX_MISSING = 1000
"""The most documents of candidates that may wait to be fetched: an agent may name any number of
roles."""
MAX_UNREADABLE = 1000
MAX_CANDIDATE_NAMES = 16
"""The most documents of candidates fetched in one read. Kept low, because a decision's own read may
have to wait until that read has finished."""


class MissingDocument(Exception):
    """a document of the policy set is not here yet"""

    def __init__(self, name: str) -> None:
        super().__init__(f"document `{name}` is not here yet")
        self.name = name


class FetchFailed(Exception):
    """the documents that a decision needs can't be fetched at the moment"""


class DocumentFetcher(Protocol):
    """The interface that fetches documents for which a local lookup raised `MissingDocument`."""

    async def fetch(self, names: Iterable[str], *, apart: bool = False) -> None:
        """Fetch these documents, and return once each name can be looked up locally. Raises
        `FetchFailed`. With `apart`, the read is not shared with other callers: use it for documents
        that no answer needs."""
        ...


class AllDocuments:
    """The document fetcher of a full replica. A full replica lacks no document, so there is nothing
    to fetch."""

    async def fetch(self, names: Iterable[str], *, apart: bool = False) -> None:  # noqa: ARG002
        # Only a bug gets here: a full replica never raises `MissingDocument`.
        raise FetchFailed(f"a full replica fetches nothing: {', '.join(names)}")


class ListingInterrupted(Exception):
    """the policy set, or where it is read from, changed during a listing: begin again"""


class AgentDocuments(Protocol):
    """The interface that reads the documents of all agents. `FetchFailed` and `CacheDamaged` mean
    that no complete listing is available at the moment."""

    def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Yield the documents' bodies in parts, which may be empty; each takes a fraction of a
        millisecond to read. All bodies are of the revision that is in force when the last part
        arrives. Raises `ListingInterrupted`, `FetchFailed` and `CacheDamaged`."""
        ...


class OwnAgentOnly:
    """The `AgentDocuments` of a replica that gets only its own agent's documents, so that no
    listing can be complete."""

    async def read(self) -> AsyncGenerator[Sequence[bytes], None]:
        """Raise `FetchFailed`, and say where such a listing is available."""
        whole: Sequence[Sequence[bytes]] = ()
        for part in whole:
            yield part
        raise FetchFailed(
            "this sidecar enrols, so it is given the documents of its own agent alone; ask a "
            "sidecar with a key of its own (`key_file`), or `GET /v1/policies/access` of the "
            "control API"
        )


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy set as decisions see it: its documents, its age, and the fetcher of missing
    documents. `monotonic` is the clock by which `freshness` measures the age."""

    policy_set: PolicySet
    freshness: Freshness
    document_fetcher: DocumentFetcher
    monotonic: Callable[[], float]

    def stale(self) -> bool:
        return self.freshness.stale(self.monotonic())

    def masks(self) -> bool:
        # If in doubt, mask: a stale policy set can no longer say what to mask.
        return self.policy_set.masks() or self.stale()


class CandidateRoles:
    """Looks up roles as candidate policies define them. Decisions call `candidate_role`; the loop
    `run` fetches the documents that were missing."""

    def __init__(self, policies: PolicyView) -> None:
        self._policy_set = policies.policy_set
        self._fetch = policies.document_fetcher.fetch
        self._missing: dict[str, None] = {}
        self._unreadable: dict[str, int] = {}
        self._wanted = asyncio.Event()
        self._backoff = Backoff(0.1, 5.0)

    def candidate_role(self, candidate: str, role: str) -> Role | None:
        """Return the role as the candidate's policies define it; None if the candidate has no
        policy for the role. Raises an error, of any kind, if the documents here can't tell."""
        if self._missing or self._unreadable:
            # The error of the last look-up, if it still holds: looking again takes as long.
            name = candidate_name(candidate, role)
            if name in self._missing:
                raise MissingDocument(name)
            if self._unreadable.get(name) == self._policy_set.revision:
                raise ValueError(f"document `{name}` can't be read")
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
        """Fetch the documents that `candidate_role` found missing, until cancelled."""
        size = MAX_CANDIDATE_NAMES
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._missing:
                names = list(islice(self._missing, size))
                size = min(size * 2, MAX_CANDIDATE_NAMES)
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
