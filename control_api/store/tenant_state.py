"""Caches one tenant's state: its policy set, the sessions seen so far, and the requests that wait
for a change. The state can be dropped at any time, and is loaded again when it is needed.

A session's owner and `expires_at` never change (`CONTRACT.md`, Sessions), so a cached row is as
good as the database's until the session is revoked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import orjson

from control_api.store.queries.key_rows import EnrolledKey
from control_api.store.queries.session_rows import SessionRow
from policies.definitions.model import Key, Session, TenantSettings
from policies.ground.errors import Unavailable
from policies.retrieval import Retrieval
from policies.sets.policy_set import (
    CANDIDATE,
    SESSION,
    TENANT,
    PolicySet,
    agent_name,
    candidate_documents,
    enrolment_name,
    key_name,
    role_name,
)
from policies.sets.source_levels import SOURCES

MAX_SESSIONS = 16_384


class SessionCache:
    """A cache of one tenant's sessions; the one cached first is evicted first. `changes` counts
    revocations: a row that was read before the latest one may be stale."""

    def __init__(self) -> None:
        self.changes = 0
        self._held: dict[str, SessionRow] = {}

    def at(self, session_id: str, now: int) -> Session | None:
        """Return the session's state at `now` (microseconds); None if it is not cached."""
        held = self._held.get(session_id)
        return None if held is None else held.at(now)

    def keep(self, row: SessionRow) -> None:
        # Dicts keep insertion order, so the first key is the oldest. Keeping the order of use would
        # cost a write on each read.
        while len(self._held) >= MAX_SESSIONS:
            self._held.pop(next(iter(self._held)))
        self._held[row.session_id] = row

    def revoked(self, documents: Iterable[str]) -> None:
        """Drop the sessions among these published documents: their state has changed."""
        for name in documents:
            if name.startswith(SESSION):
                # Counted even if the session is not cached: a read of its row may be under way.
                self.changes += 1
                self._held.pop(name.removeprefix(SESSION), None)

    def forget(self) -> None:
        """Drop every session, since any of them may have been revoked."""
        self.changes += 1
        self._held.clear()


Load = Callable[[Sequence[str]], Awaitable[Mapping[str, bytes | None]]]
LoadEnrolled = Callable[[bytes], Awaitable[EnrolledKey | None]]

MAX_DOCUMENTS = 8192
"""The most documents cached as bytes, including those known to be absent."""
MAX_ENROLLED = 16_384
"""The most rows of enrolled keys that are cached, including those known to be absent."""


class TenantState:
    """A tenant's state in memory: its policy set at `policy_set.revision`, whose documents are
    loaded one at a time."""

    def __init__(
        self, tenant_id: str, revision: int, active: bool, load: Load, load_enrolled: LoadEnrolled
    ) -> None:
        self.tenant_id = tenant_id
        self.active = active
        self.sessions = SessionCache()
        self._bodies: dict[str, bytes | None] = {}
        self.policy_set = PolicySet(self._body)
        self.policy_set.revision = revision
        self._load = load
        self._load_enrolled = load_enrolled
        self._enrolled: dict[bytes, EnrolledKey | None] = {}
        self.changes = 0
        """The number of publications so far. A read during which it grows may be older than the
        cached documents."""
        self._change_waiters: set[asyncio.Future[None]] = set()
        self._report_waiters: set[asyncio.Future[None]] = set()

    async def need(self, names: Iterable[str]) -> None:
        """Make these documents available to the policy set; returns at once if they are cached.

        All of them stay available until the caller's next `await`.
        """
        wanted = tuple(names)
        # A loop, because loading some documents may evict others of `wanted`, and a publication
        # during the read makes the result void.
        while missing := [name for name in wanted if name not in self._bodies]:
            changes = self.changes
            found = await self._load(missing)
            if changes != self.changes:
                # A document was published during the read, so `found` may be outdated.
                continue
            for name in missing:
                if len(self._bodies) >= MAX_DOCUMENTS:
                    self._bodies.pop(next(iter(self._bodies)))
                self._bodies[name] = found.get(name)

    async def need_for(self, *retrievals: Retrieval) -> None:
        """Load the documents that decisions on `retrievals` need, except the key's."""
        names = [TENANT, SOURCES]
        for each in retrievals:
            names.append(role_name(each.agent_role))
            if each.agent_id is not None:
                names.append(agent_name(each.agent_id))
        needed = dict.fromkeys(names)
        await self.need(needed)
        # The tenant's document, which lists the candidates, may change while theirs are loaded.
        while missing := [
            name
            for each in retrievals
            for name in self._candidate_names(each)
            if name not in self._bodies
        ]:
            try:
                await self.need([*needed, *missing])
            except Unavailable:
                return  # the answer does not depend on them: they count as errors

    def _candidate_names(self, retrieval: Retrieval) -> list[str]:
        """Return the names of the candidates' documents that a decision needs. The tenant's own
        document must be loaded."""
        try:
            settings = self.policy_set.settings()
        except Exception:  # noqa: BLE001  # the decision meets the same fault, and denies
            return []
        return candidate_documents(settings, retrieval)

    def _body(self, name: str) -> bytes | None:
        # A role's document that is not here does not exist, since `need_for` was called. That of a
        # candidate may not have been loaded: then this raises, and the candidate fails.
        return self._bodies[name] if name.startswith(CANDIDATE) else self._bodies.get(name)

    def holds_for(self, retrieval: Retrieval) -> bool:
        """Return whether `need_for` would return at once, without the cost of a coroutine and a
        list."""
        bodies, agent_id = self._bodies, retrieval.agent_id
        return (
            TENANT in bodies
            and SOURCES in bodies
            and role_name(retrieval.agent_role) in bodies
            and (agent_id is None or agent_name(agent_id) in bodies)
            and all(name in bodies for name in self._candidate_names(retrieval))
        )

    def known_key(self, digest: bytes) -> Key | None:
        """Return the key like `find_key`, but from this process's memory alone."""
        # Ask the policy set only for what is cached here: it keeps in mind what it did not find.
        return self.policy_set.key(digest) if key_name(digest) in self._bodies else None

    async def find_key(self, digest: bytes) -> Key | None:
        """Return the tenant's key with this SHA-256, None if it is missing or revoked. Its expiry
        is not checked."""
        await self.need((key_name(digest),))
        key = self.policy_set.key(digest)
        return key if key is not None else await self._enrolled_key(digest)

    def enrolled_agent(self, digest: bytes) -> str | None:
        """Return the agent of the pod that enrolled for this key; None if the key was not looked up
        yet or is not an enrolled key."""
        row = self._enrolled.get(digest)
        return None if row is None else row.agent_id

    async def _enrolled_key(self, digest: bytes) -> Key | None:
        """Return the enrolled key of a pod, None if there is none or it is no longer valid. Such a
        key has no document of its own; the enrolment document of its agent says whether it is
        valid."""
        if digest not in self._enrolled:
            # A row never changes, and one that is missing never appears: `digest` has this tenant.
            found = await self._load_enrolled(digest)
            while len(self._enrolled) >= MAX_ENROLLED:
                self._enrolled.pop(next(iter(self._enrolled)))
            self._enrolled[digest] = found
        row = self._enrolled[digest]
        if row is None:
            return None
        await self.need((enrolment_name(row.agent_id),))
        enrolment = self.policy_set.enrolment(row.agent_id)
        alive = enrolment is not None and enrolment.generation == row.generation
        return row.key() if alive else None

    def published(self, revision: int, documents: Mapping[str, bytes | None]) -> None:
        """Put committed documents in force. After a write by this process, that happens before the
        answer is sent."""
        self.changes += 1
        # Only cached ones: other documents load when they are needed, at this revision or later.
        for name, body in documents.items():
            if name in self._bodies:
                self._bodies[name] = body
        self.policy_set.apply(documents, revision)
        self.sessions.revoked(documents)
        if (settings := documents.get(TENANT)) is not None:
            self.active = TenantSettings.from_wire(orjson.loads(settings)).active
        self.wake()

    def forget(self, revision: int) -> None:
        """Drop all cached documents and sessions, because another process may have replaced
        them."""
        self.changes += 1
        self._bodies.clear()
        self.sessions.forget()
        self.policy_set.reset(revision)
        self.wake()

    def wake(self) -> None:
        _wake(self._change_waiters)
        _wake(self._report_waiters)

    async def wait(self, seconds: float) -> None:
        """Wait for a change, for at most `seconds`."""
        await _wait(self._change_waiters, seconds)

    def wake_report_waiters(self) -> None:
        _wake(self._report_waiters)

    async def wait_report(self, seconds: float) -> None:
        """Wait for a sidecar to report to this process, for at most `seconds`."""
        await _wait(self._report_waiters, seconds)

    @property
    def has_waiters(self) -> bool:
        return bool(self._change_waiters or self._report_waiters)


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


async def _wait(waiters: set[asyncio.Future[None]], seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.add(waiter)
    try:
        async with asyncio.timeout(seconds):
            await waiter
    except TimeoutError:
        pass
    finally:
        waiters.discard(waiter)
