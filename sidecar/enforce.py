"""The product in one file: a retrieval is decided here, recorded, and only then answered.

    fresh        is the policy set young enough to decide by? An old one denies everything
    facts        who asks, and what the policy set says of them: local, microseconds
    session      whose it is; the first time that anyone names it, the centre is asked
    evaluate     the ten checks, pure (`policies/evaluate.py`)
    record       the decision, all that was asked and the facts it rests on, chained into the spool
    durable      the record is on disk: now, and not before, the caller may hear the answer

Whatever goes wrong on the way is a DENY, recorded like any other; where not even that can be
recorded there is no decision, and the caller hears `Unavailable` (503). There is no way from a
retrieval to an ALLOW but through `Recorder.conclude`, and none through it without a record.

Knows the order of the steps. Knows nothing of HTTP, of files, or of how the policy set gets here.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from policies.checks.finding import CheckOutcome, Facts
from policies.definitions.model import Key
from policies.evaluate import TENANT_FROZEN, Decision, admitted, evaluate, gather, refuse
from policies.explain import explain
from policies.ground.clock import Clock
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet, documents_for
from sidecar.metrics.metrics import Metrics
from sidecar.policy_cache.document_fetcher import DocumentFetcher, FetchFailed, MissingDocument
from sidecar.policy_cache.freshness import Freshness
from sidecar.recorder import RecordedDecision, Recorder, Verdict
from sidecar.sessions import ClaimFailed, SessionRegistry
from sidecar.spool import Spool

log = logging.getLogger(__name__)

_BRINGS = 3


class Enforcer:
    """Decides and records for every way into this sidecar."""

    def __init__(
        self,
        policy_set: PolicySet,
        freshness: Freshness,
        sessions: SessionRegistry,
        spool: Spool,
        metrics: Metrics,
        clock: Clock,
        entropy: Callable[[int], bytes],
        supply: DocumentFetcher,
    ) -> None:
        self._supply = supply
        self._policy_set = policy_set
        self._freshness = freshness
        self._sessions = sessions
        self.metrics = metrics
        self._monotonic = clock.monotonic
        self.entropy = entropy
        """Random bytes that are given to nobody else."""
        self._recorder = Recorder(spool, metrics, clock, entropy, self._masks)
        self.note_retrieval = self._recorder.note_retrieval

    async def evaluate(self, retrieval: Retrieval, key: Key | None) -> RecordedDecision:
        """Decide, record, and return once the record is durable. Raises `SpoolError` (503) where
        nothing can be recorded. `key` is None where the caller's key is no longer valid."""
        pending = await self.submit(retrieval, key)
        await pending.durable
        return pending

    async def submit(
        self, retrieval: Retrieval, key: Key | None, *, reports: bool = False
    ) -> RecordedDecision:
        """As `evaluate`, without the wait for the disk: for a caller that has something to prepare
        meanwhile. Where the source only `reports`, a denial is recorded as one that was let
        through."""
        return (await self.submit_together((retrieval,), key, reports=reports))[0]

    async def submit_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, *, reports: bool = False
    ) -> list[RecordedDecision]:
        """Decides the retrievals of one request, at least one, all by the same caller. If every
        one passes, their records are stored together and each has its `RecordedDecision`, in
        order. If one
        does not, the result is that denial alone: nothing is retrieved, and an ALLOW beside it
        would tell of a retrieval that never took place."""
        try:
            for _ in range(_BRINGS):
                try:
                    return await self._submit_together(retrievals, key, reports)
                except MissingDocument as lacking:
                    await self._supply.bring({lacking.name, *documents_for(retrievals[0])})
            why = "the policy set changes faster than its documents can be fetched"
        except FetchFailed as error:
            why = f"the policy set's documents can't be fetched: {error}"
        unknown = refuse("evaluation_error", why)
        return self._settled([Verdict(each, unknown, None) for each in retrievals], reports)

    async def _submit_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, reports: bool
    ) -> list[RecordedDecision]:
        # One request names one session: once it is claimed, it is so for all its retrievals.
        new = next((each for each in retrievals if self.must_claim(each, key)), None)
        if new is not None:
            try:
                await self._sessions.claim(new, masking=self._masks())
            except ClaimFailed as error:
                unknown = refuse("evaluation_error", f"the session can't be claimed: {error}")
                verdicts = [Verdict(each, unknown, None) for each in retrievals]
                return self._settled(verdicts, reports)
        return self._decide_together(retrievals, key, reports)

    def must_claim(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Whether the call names a session that is new here, and may claim it: then `submit` has
        to ask the centre first, and otherwise `decide` can answer at once. Raises
        `MissingDocument`."""
        session_id = retrieval.session_id
        if session_id is None or key is None or self._sessions.known(session_id) is not None:
            return False
        if self._freshness.stale(self._monotonic()):
            return False
        try:
            # INVARIANT: a call that fails checks 1 to 4 claims nothing (contract, section 3).
            return admitted(retrieval, gather(self._policy_set, key, retrieval))
        except MissingDocument:
            raise
        except Exception:
            log.exception("a check failed: nothing is claimed")
            return False  # `decide` comes to the same failure, and records it

    def decide(
        self, retrieval: Retrieval, key: Key | None, *, reports: bool = False
    ) -> RecordedDecision:
        """The decision by what is known here and now, its record handed to the spool. Raises
        `MissingDocument`, and nothing is decided, where that takes a document that is not here
        yet."""
        return self._decide_together((retrieval,), key, reports)[0]

    def _decide_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, reports: bool
    ) -> list[RecordedDecision]:
        """All in one turn of the loop, so by one policy set. Raises `MissingDocument` before
        anything is
        recorded."""
        started = self._monotonic()
        pendings = self._settled(
            [self._verdict(each, key, started) for each in retrievals], reports
        )
        took = (self._monotonic() - started) / len(pendings)
        for _ in pendings:
            self.metrics.evaluate_seconds.observe(took)
        return pendings

    def _settled(self, verdicts: Sequence[Verdict], reports: bool) -> list[RecordedDecision]:
        """What the verdicts of one request come to: one denial is the end of all of it."""
        reports = self.may_report(reports)
        if len(verdicts) > 1 and not reports:
            denied = next((each for each in verdicts if each.decision.decision == "DENY"), None)
            verdicts = verdicts if denied is None else (denied,)
        return self._recorder.conclude(verdicts, reports=reports)

    def _verdict(self, retrieval: Retrieval, key: Key | None, now: float) -> Verdict:
        facts = None
        if self._freshness.stale(now):
            decision = refuse("policy_set_stale", self._freshness.reason(now))
        elif key is None:
            decision = refuse("key_not_valid", "the agent's API key is not valid, or not any more")
        else:
            try:
                facts = self._facts(retrieval, key)
                decision = evaluate(retrieval, facts)
            except MissingDocument:
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
        return Verdict(retrieval, decision, facts)

    async def refuse(
        self, retrieval: Retrieval, policy_name: str, reason: str, *, reports: bool = False
    ) -> RecordedDecision:
        """Record a DENY that none of the ten checks made, such as a request that can't be read."""
        verdict = Verdict(retrieval, refuse(policy_name, reason), None)
        pending = self._recorder.conclude((verdict,), reports=self.may_report(reports))[0]
        await pending.durable
        return pending

    async def prepare(self, retrieval: Retrieval, key: Key | None) -> None:
        """Fetches what `permits` has to look at for a retrieval by this role and agent, of whatever
        source. Where that can't be had, `permits` says no."""
        try:
            if key is not None:
                gather(self._policy_set, key, retrieval)
        except MissingDocument as lacking:
            with contextlib.suppress(FetchFailed):
                await self._supply.bring({lacking.name, *documents_for(retrieval)})
        except Exception:
            log.exception("a check failed: `permits` will come to the same")

    def permits(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Whether `evaluate` would allow it now, by the documents that are here (`prepare`).
        Nothing is recorded and no session claimed: this filters lists, and lets nothing out of the
        sidecar by itself."""
        facts = self.outlook(retrieval, key)
        return facts is not None and allows(retrieval, facts)

    def outlook(self, retrieval: Retrieval, key: Key | None) -> Facts | None:
        """What `permits` goes by, the same for every source that this caller may ask for; None
        where nothing is permitted."""
        if key is None or self._freshness.stale(self._monotonic()):
            return None
        try:
            return self._facts(retrieval, key)
        except MissingDocument:
            return None
        except Exception:
            log.exception("a check failed: nothing is shown in a list")
            return None

    def explain(self, retrieval: Retrieval, key: Key | None, decision: Decision) -> dict[str, Any]:
        """Why `decision` came out as it did, in the turn of the loop in which it was made."""
        reached = decision.findings[0].outcome is not CheckOutcome.not_reached
        known = reached or decision.policy_name == TENANT_FROZEN
        facts = self._facts(retrieval, key) if known and key is not None else None
        return explain(retrieval, facts, decision)

    def may_report(self, reports: bool) -> bool:
        """Whether a source that only `reports` lets denials through now. A freeze stops it, too: an
        administrator who freezes a tenant means that nothing is read."""
        return reports and not self._policy_set.frozen()

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


def allows(retrieval: Retrieval, facts: Facts) -> bool:
    """Whether the facts allow a retrieval. Nothing is recorded: for names in a list. Pure, so that
    another thread may ask."""
    try:
        return evaluate(retrieval, facts).decision == "ALLOW"
    except Exception:
        log.exception("a check failed: the name is left out of a list")
        return False
