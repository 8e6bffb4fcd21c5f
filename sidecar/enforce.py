"""The product in one file: a retrieval is decided here, recorded, and only then answered.

    fresh        is the policy set recent enough to decide by? A stale one denies everything
    facts        who asks, and what the policy set says about them: local, microseconds
    session      who owns it: the control API is asked the first time it is named
    evaluate     the ten checks, pure (`policies/evaluate.py`)
    record       the decision, the request and the facts it rests on, chained into the spool
    durable      the record is on disk: now, and not before, the caller gets the answer

Whatever fails on the way is a DENY, recorded like any other. If not even that can be recorded,
there is no decision, and the caller gets `Unavailable` (503). A retrieval becomes an ALLOW only
through `Recorder.conclude`, which always makes a record.

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

_MAX_FETCHES = 3


class Enforcer:
    """Decides and records, for the proxy as for the sidecar's own API."""

    def __init__(
        self,
        policy_set: PolicySet,
        freshness: Freshness,
        sessions: SessionRegistry,
        spool: Spool,
        metrics: Metrics,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        document_fetcher: DocumentFetcher,
    ) -> None:
        self._document_fetcher = document_fetcher
        self._policy_set = policy_set
        self._freshness = freshness
        self._sessions = sessions
        self.metrics = metrics
        self._monotonic = clock.monotonic
        self.random_bytes = random_bytes
        """Random bytes, each handed out once."""
        self._recorder = Recorder(spool, metrics, clock, random_bytes, self._masks)
        self.note_retrieval = self._recorder.note_retrieval

    async def evaluate(self, retrieval: Retrieval, key: Key | None) -> RecordedDecision:
        """Decide, record, and return once the record is durable. Raises `SpoolError` (503) if
        nothing can be recorded. `key` is None if the caller's key is no longer valid."""
        pending = await self.submit(retrieval, key)
        await pending.durable
        return pending

    async def submit(
        self, retrieval: Retrieval, key: Key | None, *, report_mode: bool = False
    ) -> RecordedDecision:
        """As `evaluate`, but without waiting for the disk, for a caller that can prepare something
        meanwhile. With `report_mode`, a denial is recorded as one that is forwarded."""
        return (await self.submit_together((retrieval,), key, report_mode=report_mode))[0]

    async def submit_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, *, report_mode: bool = False
    ) -> list[RecordedDecision]:
        """Decide the retrievals of one request, at least one, all by the same caller.

        If all pass, their records are stored together and each has its `RecordedDecision`, in
        order. If one does not, the result is that denial alone: nothing is retrieved, and an ALLOW
        beside it would record a retrieval that never took place.
        """
        try:
            for _ in range(_MAX_FETCHES):
                try:
                    return await self._submit_together(retrievals, key, report_mode)
                except MissingDocument as missing:
                    await self._document_fetcher.fetch(
                        {missing.name, *documents_for(retrievals[0])}
                    )
            why = "the policy set changes faster than its documents can be fetched"
        except FetchFailed as error:
            why = f"the policy set's documents can't be fetched: {error}"
        unknown = refuse("evaluation_error", why)
        return self._conclude([Verdict(each, unknown, None) for each in retrievals], report_mode)

    async def _submit_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision]:
        # All retrievals of a request name the same session, so one claim serves them all.
        new = next((each for each in retrievals if self.must_claim(each, key)), None)
        if new is not None:
            try:
                await self._sessions.claim(new, masking=self._masks())
            except ClaimFailed as error:
                unknown = refuse("evaluation_error", f"the session can't be claimed: {error}")
                verdicts = [Verdict(each, unknown, None) for each in retrievals]
                return self._conclude(verdicts, report_mode)
        return self._decide_together(retrievals, key, report_mode)

    def must_claim(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Whether the call names a session that is new here and that it may claim. If so, `submit`
        has to ask the control API first; otherwise `decide` can answer at once. Raises
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
            return False  # `decide` fails in the same way, and records it

    def decide(
        self, retrieval: Retrieval, key: Key | None, *, report_mode: bool = False
    ) -> RecordedDecision:
        """Decide by what is known here and now, and hand the record to the spool. Raises
        `MissingDocument`, and decides nothing, if that takes a document that is not here yet."""
        return self._decide_together((retrieval,), key, report_mode)[0]

    def _decide_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision]:
        """Decide all in one turn of the loop, so by one policy set. Raises `MissingDocument` before
        anything is recorded."""
        started = self._monotonic()
        pendings = self._conclude(
            [self._verdict(each, key, started) for each in retrievals], report_mode
        )
        took = (self._monotonic() - started) / len(pendings)
        for _ in pendings:
            self.metrics.evaluate_seconds.observe(took)
        return pendings

    def _conclude(self, verdicts: Sequence[Verdict], report_mode: bool) -> list[RecordedDecision]:
        """Conclude the verdicts of one request: a single denial denies all of it."""
        report_mode = self.may_report(report_mode)
        if len(verdicts) > 1 and not report_mode:
            denied = next((each for each in verdicts if each.decision.decision == "DENY"), None)
            verdicts = verdicts if denied is None else (denied,)
        return self._recorder.conclude(verdicts, report_mode=report_mode)

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
                # The gathered facts did not lead to this answer, so they stay out of the record.
                facts = None
                decision = refuse("evaluation_error", "a check failed; see the sidecar's log")
            else:
                # INVARIANT: nothing is allowed in a session that is not claimed.
                claimed = retrieval.session_id is None or facts.session is not None
                if decision.decision == "ALLOW" and not claimed:
                    facts = None
                    decision = refuse("evaluation_error", "the session is not claimed")
        return Verdict(retrieval, decision, facts)

    async def refuse(
        self, retrieval: Retrieval, policy_name: str, reason: str, *, report_mode: bool = False
    ) -> RecordedDecision:
        """Record a DENY that none of the ten checks made, such as for an unreadable request."""
        verdict = Verdict(retrieval, refuse(policy_name, reason), None)
        pending = self._recorder.conclude((verdict,), report_mode=self.may_report(report_mode))[0]
        await pending.durable
        return pending

    async def prepare(self, retrieval: Retrieval, key: Key | None) -> None:
        """Fetch what `permits` needs for a retrieval by this role and agent, from any source. If it
        can't be fetched, `permits` returns False."""
        try:
            if key is not None:
                gather(self._policy_set, key, retrieval)
        except MissingDocument as missing:
            with contextlib.suppress(FetchFailed):
                await self._document_fetcher.fetch({missing.name, *documents_for(retrieval)})
        except Exception:
            log.exception("a check failed: `permits` will come to the same")

    def permits(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Whether `evaluate` would allow it now, by the documents that are here (see `prepare`).
        Records nothing and claims no session: this filters lists, and by itself lets no data out.
        """
        facts = self.outlook(retrieval, key)
        return facts is not None and allows(retrieval, facts)

    def outlook(self, retrieval: Retrieval, key: Key | None) -> Facts | None:
        """The facts that `permits` uses, the same for every source that this caller may ask for;
        None if nothing is permitted."""
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
        """Explain `decision`. Call it in the same turn of the loop in which the decision was
        made."""
        reached = decision.findings[0].outcome is not CheckOutcome.not_reached
        known = reached or decision.policy_name == TENANT_FROZEN
        facts = self._facts(retrieval, key) if known and key is not None else None
        return explain(retrieval, facts, decision)

    def may_report(self, report_mode: bool) -> bool:
        """Whether a source in mode `report` forwards denials now. Not while the tenant is frozen:
        an administrator who freezes a tenant means that nothing is read."""
        return report_mode and not self._policy_set.frozen()

    def _facts(self, retrieval: Retrieval, key: Key) -> Facts:
        facts = gather(self._policy_set, key, retrieval)
        if retrieval.session_id is None:
            return facts
        settings, key, agent, _, role, revision = facts
        session = self._sessions.known(retrieval.session_id)
        return Facts(settings, key, agent, session, role, revision)

    def _masks(self) -> bool:
        """If in doubt, mask: a stale policy set can no longer say what to mask."""
        return self._policy_set.masks() or self._freshness.stale(self._monotonic())


def allows(retrieval: Retrieval, facts: Facts) -> bool:
    """Whether the facts allow a retrieval. Records nothing: for names in a list. Pure, so another
    thread may call it."""
    try:
        return evaluate(retrieval, facts).decision == "ALLOW"
    except Exception:
        log.exception("a check failed: the name is left out of a list")
        return False
