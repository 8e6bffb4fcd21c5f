"""Keeps the sessions that this sidecar knows: each is claimed once at the control API, then
remembered.

A session belongs to the role and agent of the call that first named it, anywhere in the tenant
(`CONTRACT.md`, Sessions), so only the control API can say who owns it. After that, the answer
changes only when the session expires or is revoked, and revocations come with the policy set. So it
is kept in memory and, for a start without the control API, on disk. Several calls that name a
session for the first time share one claim (`SharedCall`). This module does not decide when a call
may claim a session.
"""

import asyncio
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import orjson

from policies.definitions.model import Session
from policies.ground.canonical import micros
from policies.ground.clock import Clock
from policies.retrieval import Retrieval
from policies.sets.policy_set import SESSION, Fetch, session_name
from policies.sets.signed_head import Claim
from policies.trail.masked_ahead import recorded_user
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.policy_cache.policy_store import CacheFile

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Runs `call` in a task of its own, and gives its result to several waiting tasks. A task that
    is cancelled while it waits leaves the call running for the others. When no task waits any more,
    the call is cancelled."""

    __slots__ = ("_task", "_waiting")

    def __init__(self, call: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._waiting = 0

    @property
    def awaited(self) -> bool:
        """True while a task waits for the result. Once it has become False, the call is cancelled,
        so no task may begin to wait."""
        return self._waiting > 0

    async def result(self) -> T:
        """Wait for the call, and return its result or raise its error."""
        self._waiting += 1
        try:
            # Not `await self._task`, which would pass on a cancellation of this waiter.
            await asyncio.wait((self._task,))
            return self._task.result()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._task.cancel()


log = logging.getLogger(__name__)

PATH = "/v1/sidecars/sessions/claim"
CLAIM_SECONDS = 2.0  # short: an agent waits for the answer
STATES = ("active", "expired", "revoked")
MAX_IN_MEMORY = 10_000
MAX_ON_DISK = 100_000

_FIND = "SELECT state, agent_role, agent_id, expires_at FROM sessions WHERE session_id = ?"
_STORE = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)"
# The session that expires first is removed first. If an expired one is named again, the control API
# is asked again: it forgets no session, and answers that this one has expired.
_TRIM = (
    "DELETE FROM sessions WHERE session_id IN"
    " (SELECT session_id FROM sessions ORDER BY expires_at LIMIT max(0,"
    "  (SELECT count(*) FROM sessions) - ?))"
)
_TRIM_EVERY = 1000  # `_TRIM` counts all rows, so it doesn't run for every claim

FOREIGN_SECONDS = 1.0
"""The seconds for which another agent's session is remembered if this sidecar would not be told
that it was revoked."""

_Claim = tuple[Session, int]
PublishedClaim = Callable[[str], Awaitable[Claim | None]]


class ClaimFailed(Exception):
    """the control API could not be asked who owns this session"""


class SessionRegistry:
    """The sessions known to this sidecar: `known` looks one up locally, `claim` asks the control
    API. `claims` counts the control API's answers by session state, and `failures` the attempts
    without a usable answer. `published_claim` reads a claim that the control API may already have
    published."""

    def __init__(
        self,
        control: ControlClient,
        file: CacheFile,
        fetch: Fetch,
        clock: Clock,
        published_claim: PublishedClaim | None = None,
    ) -> None:
        self.claims = dict.fromkeys(STATES, 0)
        self.failures = 0
        self.receives_revocations_of: Callable[[str | None], bool] = lambda _: True
        """Returns whether revocations of this agent's sessions arrive here with the policy set."""
        self._control = control
        self._file = file
        self._fetch = fetch
        self._published_claim = published_claim
        self._now = clock.now
        self._monotonic = clock.monotonic
        self._recent: OrderedDict[str, _Claim] = OrderedDict()
        self._foreign: OrderedDict[str, tuple[_Claim, float]] = OrderedDict()
        self._pending: dict[str, SharedCall[_Claim]] = {}
        self._stored_count = 0

    def known(self, session_id: str) -> Session | None:
        """Return the session in its current state; None if it was never claimed through this
        sidecar."""
        claim = self._recent.get(session_id)
        # A remembered claim needs no look at the policy set: `changed` drops it if it was revoked.
        if claim is not None:
            self._recent.move_to_end(session_id)
            return self._current(claim)
        if (foreign := self._known_foreign(session_id)) is not None:
            return self._current(foreign)
        claim = self._find(session_id)
        if claim is None:
            return None
        self._remember(session_id, claim)
        return self._current(claim)

    def _known_foreign(self, session_id: str) -> _Claim | None:
        claim, until = self._foreign.get(session_id, (None, 0.0))
        return claim if self._monotonic() < until else None

    def holds(self, session_id: str) -> bool:
        """Return whether the session was claimed through this sidecar, whatever its state."""
        return session_id in self._recent or self.known(session_id) is not None

    async def claim(self, retrieval: Retrieval, *, masking: bool) -> Session:
        """Claim the session that `retrieval` names; a new session then belongs to the retrieval's
        role and agent. Concurrent calls for the same session share one request.

        Raises `ClaimFailed`, and `MissingDocument` if it is not known here whether the session is
        revoked. With `masking`, the user is masked before the control API sees it.
        """
        session_id = retrieval.session_id
        assert session_id is not None
        # Raises `MissingDocument` before anything is claimed. `_apply_revocation` needs it below.
        self._fetch(session_name(session_id))
        shared = self._pending.get(session_id)
        if shared is None:
            shared = self._pending[session_id] = SharedCall(self._claim(retrieval, masking))
        try:
            return self._current(await shared.result())
        except ClaimFailed as error:
            # A new one for each: one exception in several tasks would mix up their traces.
            raise ClaimFailed(str(error)) from error
        finally:
            if not shared.awaited and self._pending.get(session_id) is shared:
                del self._pending[session_id]

    async def _claim(self, retrieval: Retrieval, masking: bool) -> _Claim:
        try:
            # The answer may be older than a revocation that is here already.
            claim = self._apply_revocation(await self._ask(retrieval, masking))
        except BaseException:
            self.failures += 1
            raise
        session = claim[0]
        self.claims[session.state] += 1
        self._remember(session.session_id, claim)
        if self.receives_revocations_of(session.agent_id):
            self._store(claim)
        return claim

    def changed(self, documents: Iterable[str] | None) -> None:
        """Forget the sessions whose documents in the policy set changed; all sessions if
        `documents` is None. The next lookup then checks the document again."""
        # Only memory: what is on disk is compared with the policy set whenever it is read.
        if documents is None:
            self._recent.clear()
            return
        for name in documents:
            if name.startswith(SESSION):
                self._recent.pop(name.removeprefix(SESSION), None)

    def forget(self) -> None:
        """Forget all sessions, because the control API has another store, in which no earlier claim
        is valid."""
        self._recent.clear()
        self._foreign.clear()
        self._file.connection.execute("DELETE FROM sessions")

    def _current(self, claim: _Claim) -> Session:
        session, expires_at = claim
        # Expiry needs no message: the sidecar's clock follows the control API's.
        if session.state == "active" and self._now() >= expires_at:
            return Session(session.session_id, "expired", session.agent_role, session.agent_id)
        return session

    async def _ask(self, retrieval: Retrieval, masking: bool) -> _Claim:
        if self._published_claim is not None and (
            published := await self._published_claim(str(retrieval.session_id))
        ):
            return published.session(), published.expires_at
        body = orjson.dumps(
            {
                "session_id": retrieval.session_id,
                "agent_role": retrieval.agent_role,
                "agent_id": retrieval.agent_id,
                "user_id": recorded_user(retrieval) if masking else retrieval.user_id,
            }
        )
        try:
            answer = await self._control.post(PATH, body, seconds=CLAIM_SECONDS)
        except ControlUnavailable as error:
            raise ClaimFailed(str(error)) from error
        return _parse(answer, retrieval)

    def _remember(self, session_id: str, claim: _Claim) -> None:
        if not self.receives_revocations_of(claim[0].agent_id):
            self._foreign[session_id] = claim, self._monotonic() + FOREIGN_SECONDS
            if len(self._foreign) > MAX_IN_MEMORY:
                self._foreign.popitem(last=False)
            return
        self._recent[session_id] = claim
        if len(self._recent) > MAX_IN_MEMORY:
            self._recent.popitem(last=False)  # the least recently used

    def _find(self, session_id: str) -> _Claim | None:
        try:
            row = self._file.connection.execute(_FIND, (session_id,)).fetchone()
        except sqlite3.Error as error:
            # Treated as unknown: the control API is asked again, and gives the same answer. The
            # file is set aside.
            self._file.damaged = True
            log.warning("sessions on disk can't be read: %s", error)
            return None
        if row is None or not self.receives_revocations_of(row[2]):
            return None
        return self._apply_revocation((Session(session_id, *row[:3]), row[3]))

    def _apply_revocation(self, claim: _Claim) -> _Claim:
        """Return the claim, marked as revoked if the policy set has a document of the session.

        INVARIANT: a session with a document in the policy set is revoked.
        """
        session, expires_at = claim
        if self._fetch(session_name(session.session_id)) is None:
            return claim
        return replace(session, state="revoked"), expires_at

    def _store(self, claim: _Claim) -> None:
        session, expires_at = claim
        row = (session.session_id, session.state, session.agent_role, session.agent_id, expires_at)
        self._stored_count += 1
        try:
            self._file.connection.execute(_STORE, row)
            if self._stored_count % _TRIM_EVERY == 0:
                self._file.connection.execute(_TRIM, (MAX_ON_DISK,))
        except sqlite3.Error as error:
            # The control API and our memory have the claim: only a start without the control API
            # would miss it.
            log.warning("a claimed session can't be stored on disk: %s", error)


def _parse(answer: dict[str, Any], retrieval: Retrieval) -> _Claim:
    """Return the claim that the control API's answer grants. Raises `ClaimFailed` if the answer is
    not one about this session."""
    # An answer about another session, such as one that a proxy mixed up, would make this agent the
    # owner of someone else's.
    state, role, agent_id = (answer.get(name) for name in ("state", "agent_role", "agent_id"))
    if answer.get("session_id") != retrieval.session_id:
        raise ClaimFailed("the control API answered about another session")
    if state not in STATES or not isinstance(role, str) or not isinstance(agent_id, str | None):
        raise ClaimFailed("the control API's answer is not a session")
    try:
        expires_at = micros(answer["expires_at"])
    except (KeyError, TypeError, ValueError) as error:
        raise ClaimFailed("the control API did not say when the session expires") from error
    return Session(answer["session_id"], state, role, agent_id), expires_at
