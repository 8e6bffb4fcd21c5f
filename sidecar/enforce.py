"""The product in one file: a retrieval is decided here, recorded, and only then answered.

    fresh        is the policy set young enough to decide by? An old one denies everything
    facts        who asks, and what the policy set says of them: local, microseconds
    session      whose it is; the first time that anyone names it, the centre is asked
    evaluate     the ten checks, pure (`policies/evaluate.py`)
    record       the decision, all that was asked and the facts it rests on, chained into the spool
    durable      the record is on disk: now, and not before, the caller may hear the answer

Whatever goes wrong on the way is a DENY, recorded like any other; where not even that can be
recorded there is no decision, and the caller hears `Unavailable` (503). There is no way from a
retrieval to an ALLOW but through `_conclude`, and none through it without a record.

Knows the order of the steps. Knows nothing of HTTP, of files, or of how the policy set gets here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from policies.checks.finding import Facts, Outcome
from policies.evaluate import Decision, admitted, evaluate, gather, refuse
from policies.explain import explain
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.model import Key
from policies.policy_set import PolicySet, documents_for
from policies.record import decision_record, retrieval_lineage
from policies.retrieval import Retrieval
from sidecar.metrics import Metrics
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.supply import NotBrought, NotHeld, Supply
from sidecar.sessions import ClaimFailed, Sessions
from sidecar.spool import Spool, SpoolError, SpoolFull

log = logging.getLogger(__name__)

LET_THROUGH = "report mode, forwarded: "
"""What the reason of a denial begins with that was let through (`mode: report`)."""

_BRINGS = 3
_ID_ENTROPY = 10
_SALT = 32


class Pending(NamedTuple):
    """A decision whose record is on its way to the disk. Nobody may act on it before `durable` is
    done; if that raises a `SpoolError` the record is lost, and with it the decision."""

    decision: Decision
    event_id: str
    core: bytes
    """The hash of the record as spooled: what lineage cites."""
    durable: asyncio.Future[None]
    kept: bool = True
    """False where mode `best_effort` had to drop the record: nothing may cite it."""
    let_through: bool = False
    """Whether it is a denial that its source's mode `report` lets through."""

    @property
    def passes(self) -> bool:
        """Whether the request may go on."""
        return self.let_through or self.decision.decision == "ALLOW"


class Enforcer:
    """Decides and records for every way into this sidecar."""

    def __init__(
        self,
        policy_set: PolicySet,
        freshness: Freshness,
        sessions: Sessions,
        spool: Spool,
        metrics: Metrics,
        clock: Clock,
        entropy: Callable[[int], bytes],
        supply: Supply,
    ) -> None:
        self._supply = supply
        self._policy_set = policy_set
        self._freshness = freshness
        self._sessions = sessions
        self._spool = spool
        self.metrics = metrics
        self._now = clock.now
        self._monotonic = clock.monotonic
        self._entropy = entropy

    async def evaluate(self, retrieval: Retrieval, key: Key | None) -> Pending:
        """Decide, record, and return once the record is durable. Raises `SpoolError` (503) where
        nothing can be recorded. `key` is None where the caller's key is no longer valid."""
        pending = await self.submit(retrieval, key)
        await pending.durable
        return pending

    async def submit(
        self, retrieval: Retrieval, key: Key | None, *, reports: bool = False
    ) -> Pending:
        """As `evaluate`, without the wait for the disk: for a caller that has several retrievals to
        decide, or something to prepare meanwhile. Where the source only `reports`, a denial is
        recorded as one that was let through."""
        try:
            for _ in range(_BRINGS):
                try:
                    return await self._submit(retrieval, key, reports)
                except NotHeld as lacking:
                    await self._supply.bring({lacking.name, *documents_for(retrieval)})
            why = "the policy set changes faster than its documents can be fetched"
        except NotBrought as error:
            why = f"the policy set's documents can't be fetched: {error}"
        return self._conclude(retrieval, refuse("evaluation_error", why), None, reports)

    async def _submit(self, retrieval: Retrieval, key: Key | None, reports: bool) -> Pending:
        if self.must_claim(retrieval, key):
            try:
                await self._sessions.claim(retrieval, masking=self._masks())
            except ClaimFailed as error:
                unknown = refuse("evaluation_error", f"the session can't be claimed: {error}")
                return self._conclude(retrieval, unknown, None, reports)
        return self.decide(retrieval, key, reports=reports)

    def must_claim(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Whether the call names a session that is new here, and may claim it: then `submit` has
        to ask the centre first, and otherwise `decide` can answer at once. Raises `NotHeld`."""
        session_id = retrieval.session_id
        if session_id is None or key is None or self._sessions.known(session_id) is not None:
            return False
        if self._freshness.stale(self._monotonic()):
            return False
        try:
            # INVARIANT: a call that fails checks 1 to 4 claims nothing (contract, section 3).
            return admitted(retrieval, gather(self._policy_set, key, retrieval))
        except NotHeld:
            raise
        except Exception:
            log.exception("a check failed: nothing is claimed")
            return False  # `decide` comes to the same failure, and records it

    def decide(self, retrieval: Retrieval, key: Key | None, *, reports: bool = False) -> Pending:
        """The decision by what is known here and now, its record handed to the spool. Raises
        `NotHeld`, and nothing is decided, where that takes a document that is not here yet."""
        started = self._monotonic()
        facts = None
        if self._freshness.stale(started):
            decision = refuse("policy_set_stale", self._freshness.reason(started))
        elif key is None:
            decision = refuse("key_not_valid", "the agent's API key is not valid, or not any more")
        else:
            try:
                facts = self._facts(retrieval, key)
                decision = evaluate(retrieval, facts)
            except NotHeld:
                raise
            except Exception:
                log.exception("a check failed: the retrieval is denied")
                # What was gathered does not lead to this answer, so it is no part of the record.
                facts = None
                decision = refuse("evaluation_error", "a check failed; see the sidecar's log")
            else:
                # INVARIANT: nothing is allowed in a session that nobody claimed.
                claimed = retrieval.session_id is None or facts.session is not None
                if decision.decision == "ALLOW" and not claimed:
                    facts = None
                    decision = refuse("evaluation_error", "the session is not claimed")
        pending = self._conclude(retrieval, decision, facts, reports)
        self.metrics.evaluate_seconds.observe(self._monotonic() - started)
        return pending

    async def refuse(
        self, retrieval: Retrieval, policy_name: str, reason: str, *, reports: bool = False
    ) -> Pending:
        """Record a DENY that none of the ten checks made, such as a request that can't be read."""
        pending = self._conclude(retrieval, refuse(policy_name, reason), None, reports)
        await pending.durable
        return pending

    async def prepare(self, retrieval: Retrieval, key: Key | None) -> None:
        """Fetches what `permits` has to look at for a retrieval by this role and agent, of whatever
        source. Where that can't be had, `permits` says no."""
        try:
            if key is not None:
                gather(self._policy_set, key, retrieval)
        except NotHeld as lacking:
            with contextlib.suppress(NotBrought):
                await self._supply.bring({lacking.name, *documents_for(retrieval)})
        except Exception:
            log.exception("a check failed: `permits` will come to the same")

    def permits(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Whether `evaluate` would allow it now, by the documents that are here (`prepare`).
        Nothing is recorded and no session claimed: this filters lists, and lets nothing out of the
        sidecar by itself."""
        if key is None or self._freshness.stale(self._monotonic()):
            return False
        try:
            return evaluate(retrieval, self._facts(retrieval, key)).decision == "ALLOW"
        except NotHeld:
            return False
        except Exception:
            log.exception("a check failed: the name is left out of a list")
            return False

    def explain(self, retrieval: Retrieval, key: Key | None, decision: Decision) -> dict[str, Any]:
        """Why `decision` came out as it did, in the turn of the loop in which it was made."""
        reached = decision.findings[0].outcome is not Outcome.not_reached
        facts = self._facts(retrieval, key) if reached and key is not None else None
        return explain(retrieval, facts, decision)

    def note_retrieval(self, pending: Pending, detail: dict[str, int | str], outcome: str) -> None:
        """Record what an allowed retrieval returned, as lineage on its event. The caller has its
        answer already, so lineage that can't be kept is counted and changes nothing."""
        if not pending.kept:
            self.metrics.lineage_lost.add()
            return
        record_id = uuid7(self._now(), self._entropy(_ID_ENTROPY))
        event_id, core = pending.event_id, pending.core
        record = retrieval_lineage(event_id, core, detail, outcome, record_id=record_id)
        try:
            # The spool reports a failing disk itself; nobody waits for this record.
            self._spool.put(record, denial=False, hurry=False)
        except SpoolError as error:
            self.metrics.lineage_lost.add()
            log.warning("lineage of event %s is lost: %s", event_id, error)

    def _facts(self, retrieval: Retrieval, key: Key) -> Facts:
        facts = gather(self._policy_set, key, retrieval)
        if retrieval.session_id is None:
            return facts
        settings, key, agent, _, role, revision = facts
        session = self._sessions.known(retrieval.session_id)
        return Facts(settings, key, agent, session, role, revision)

    def _masks(self) -> bool:
        """In doubt, yes: a policy set that is too old may not say any more what is to be masked."""
        return self._policy_set.masks() or self._freshness.stale(self._monotonic())

    def _conclude(
        self, retrieval: Retrieval, decision: Decision, facts: Facts | None, reports: bool = False
    ) -> Pending:
        """One decision: one record, one metric, one log line."""
        denial = decision.decision == "DENY"
        let_through = denial and reports
        if let_through:
            decision = decision._replace(reason=LET_THROUGH + decision.reason)
        drawn = self._entropy(_ID_ENTROPY + _SALT)
        event_id = uuid7(self._now(), drawn)
        salt = drawn[_ID_ENTROPY:]
        # Facts say by themselves whether to mask.
        masking = self._masks() if facts is None else None
        record = decision_record(
            retrieval, decision, facts, event_id=event_id, salt=salt, masking=masking
        )
        try:
            # INVARIANT: what goes on to the data source takes no room that is kept for denials.
            placed = self._spool.put(record, denial=denial and not let_through)
        except SpoolFull:
            if denial and not let_through:
                raise
            # Room is kept back for this: an allowed retrieval that can't be recorded becomes a
            # denied one that can.
            full = refuse("audit_unavailable", "the spool is full: only denials can be recorded")
            return self._conclude(retrieval, full, None)
        # The record has its number. If we die before it is on disk nobody has heard an answer; if
        # after, it ships at the next start.
        self.metrics.decided(decision, let_through=let_through)
        if log.isEnabledFor(logging.DEBUG):
            answer, policy_name, reason = decision[:3]
            log.debug("%s %s by %s: %s", event_id, answer, policy_name, reason)
        core, durable, kept = placed
        return Pending(decision, event_id, core, durable, kept, let_through)
