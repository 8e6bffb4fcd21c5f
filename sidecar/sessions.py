"""Sessions as this sidecar knows them: claimed once through the centre, then remembered.

A session belongs to the role and agent of the call that first named it, anywhere in the tenant
(contract, section 3): only the centre can say whose it is. Once it has said so the answer changes
only by expiry and by revocation, of which the policy set tells; so it is kept in memory and, for a
start without the centre, on disk. Knows neither the checks nor when a call may claim.
"""

import asyncio
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import orjson

from policies.definitions.model import Session
from policies.ground.canonical import micros
from policies.ground.clock import Clock
from policies.retrieval import Retrieval
from policies.sets.policy_set import SESSION, Fetch, session_name
from policies.sets.signed_head import Claim
from policies.trail.record import masked_user
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.policy_cache.cache_file import CacheFile

log = logging.getLogger(__name__)

PATH = "/v1/sidecars/sessions/claim"
CLAIM_SECONDS = 2.0
STATES = ("active", "expired", "revoked")
KEPT_IN_MEMORY = 10_000
KEPT_ON_DISK = 100_000

_FIND = "SELECT state, agent_role, agent_id, expires_at FROM sessions WHERE session_id = ?"
_KEEP = "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)"
# What expired first goes first: an expired session that is named again is asked for again, and the
# centre, which forgets none, answers that it has expired.
_TRIM = (
    "DELETE FROM sessions WHERE session_id IN"
    " (SELECT session_id FROM sessions ORDER BY expires_at LIMIT max(0,"
    "  (SELECT count(*) FROM sessions) - ?))"
)
_TRIM_EVERY = 1000

_Claim = tuple[Session, int]
Told = Callable[[str], Awaitable[Claim | None]]


class ClaimFailed(Exception):
    """the centre could not be asked whose session this is"""


class SessionRegistry:
    """`known` looks here, `claim` asks the centre. `claims` counts the answers by the state they
    told, `failures` the questions without a usable one. `told` is where the centre may have said
    it already."""

    def __init__(
        self,
        centre: ControlClient,
        file: CacheFile,
        fetch: Fetch,
        clock: Clock,
        told: Told | None = None,
    ) -> None:
        self.claims = dict.fromkeys(STATES, 0)
        self.failures = 0
        self._centre = centre
        self._file = file
        self._fetch = fetch
        self._told = told
        self._now = clock.now
        self._recent: OrderedDict[str, _Claim] = OrderedDict()
        self._asking: dict[str, asyncio.Future[_Claim]] = {}
        self._kept = 0

    def known(self, session_id: str) -> Session | None:
        """The session as it stands now, or None where it was never claimed through here."""
        claim = self._recent.get(session_id)
        if claim is not None:
            self._recent.move_to_end(session_id)
            return self._standing(claim)
        claim = self._find(session_id)
        if claim is None:
            return None
        self._remember(session_id, claim)
        return self._standing(claim)

    async def claim(self, retrieval: Retrieval, *, masking: bool) -> Session:
        """The session that `retrieval` names, made for its role and agent where it is new. Calls
        that name it meanwhile share one question. Raises `ClaimFailed`, and `NotHeld` where it is
        not known here whether the session is revoked. `masking`: whether the user is masked before
        anyone hears of it."""
        session_id = retrieval.session_id
        assert session_id is not None
        self._fetch(session_name(session_id))
        asking = self._asking.get(session_id)
        if asking is not None:
            return self._standing(await asyncio.shield(asking))
        future: asyncio.Future[_Claim] = asyncio.get_running_loop().create_future()
        self._asking[session_id] = future
        try:
            # The answer may have been given before a revocation that is here already.
            claim = self._as_published(await self._ask(retrieval, masking))
        except BaseException as error:
            self.failures += 1
            # Whoever shares the question shares the failure; nobody may be there to hear it.
            shared = error if isinstance(error, ClaimFailed) else ClaimFailed(ClaimFailed.__doc__)
            future.set_exception(shared)
            future.exception()
            raise
        finally:
            del self._asking[session_id]
        self.claims[claim[0].state] += 1
        future.set_result(claim)
        self._remember(session_id, claim)
        self._keep(claim)
        return self._standing(claim)

    def changed(self, documents: Iterable[str] | None) -> None:
        """These documents of the policy set changed, or any may have: what is remembered of a
        session is looked up again, and then its document is looked at."""
        if documents is None:
            self._recent.clear()
            return
        for name in documents:
            if name.startswith(SESSION):
                self._recent.pop(name.removeprefix(SESSION), None)

    def forget(self) -> None:
        """The centre has another store: no claim of the old one holds there."""
        self._recent.clear()
        self._file.connection.execute("DELETE FROM sessions")

    def _standing(self, claim: _Claim) -> Session:
        session, expires_at = claim
        if session.state == "active" and self._now() >= expires_at:
            return Session(session.session_id, "expired", session.agent_role, session.agent_id)
        return session

    async def _ask(self, retrieval: Retrieval, masking: bool) -> _Claim:
        user_id = retrieval.user_id
        if self._told is not None and (said := await self._told(str(retrieval.session_id))):
            return said.session(), said.expires_at
        body = orjson.dumps(
            {
                "session_id": retrieval.session_id,
                "agent_role": retrieval.agent_role,
                "agent_id": retrieval.agent_id,
                "user_id": masked_user(user_id) if masking else user_id,
            }
        )
        try:
            answer = await self._centre.post(PATH, body, seconds=CLAIM_SECONDS)
        except ControlUnavailable as error:
            raise ClaimFailed(str(error)) from error
        return _read(answer, retrieval)

    def _remember(self, session_id: str, claim: _Claim) -> None:
        self._recent[session_id] = claim
        if len(self._recent) > KEPT_IN_MEMORY:
            self._recent.popitem(last=False)  # the one that was named longest ago

    def _find(self, session_id: str) -> _Claim | None:
        try:
            row = self._file.connection.execute(_FIND, (session_id,)).fetchone()
        except sqlite3.Error as error:
            self._file.damaged = True
            log.warning("known sessions can't be read: %s", error)
            return None
        if row is None:
            return None
        return self._as_published((Session(session_id, *row[:3]), row[3]))

    def _as_published(self, claim: _Claim) -> _Claim:
        """INVARIANT: a session that has a document in the policy set is revoked."""
        session, expires_at = claim
        if self._fetch(session_name(session.session_id)) is None:
            return claim
        return replace(session, state="revoked"), expires_at

    def _keep(self, claim: _Claim) -> None:
        session, expires_at = claim
        row = (session.session_id, session.state, session.agent_role, session.agent_id, expires_at)
        self._kept += 1
        try:
            self._file.connection.execute(_KEEP, row)
            if self._kept % _TRIM_EVERY == 0:
                self._file.connection.execute(_TRIM, (KEPT_ON_DISK,))
        except sqlite3.Error as error:
            # The centre has it, and so has our memory: only a start without the centre would ask.
            log.warning("a claimed session can't be kept on disk: %s", error)


def _read(answer: dict[str, Any], retrieval: Retrieval) -> _Claim:
    """What the centre said of the session that was asked for; `ClaimFailed` where it is no answer
    to that."""
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
