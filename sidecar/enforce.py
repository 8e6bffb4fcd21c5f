"""The product in one file: a retrieval is decided here, recorded, and only then answered.

    masked       personal data in its texts, before anything is decided: it may take several turns
    fresh        is the policy set recent enough to decide by? A stale one denies everything
    facts        who asks, and what the policy set says about them: local, microseconds
    session      who owns it: the control API is asked the first time it is named
    evaluate     the ten checks, pure (`policies/evaluate.py`)
    candidates   what the tenant's candidates decide otherwise, which changes no answer
    record       the decision, the request and the facts it rests on, chained into the spool
    durable      the record is on disk: now, and not before, the caller gets the answer

Any failure on the way is a DENY, recorded like any other. If not even that can be recorded, there
is no decision, and the caller gets `Unavailable` (503). A retrieval becomes an ALLOW only through
`Recorder.conclude`, which always makes a record.

Knows the order of the steps, which is why they are in one file. Knows nothing of HTTP, of files, or
of how the policy set gets here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from policies.candidates import differences
from policies.checks.finding import CheckOutcome, Facts
from policies.definitions.model import Key, Sensitivity
from policies.evaluate import TENANT_FROZEN, Decision, admitted, evaluate, gather, refuse
from policies.explain import explain
from policies.ground.masking import MaskingTurns
from policies.levels import Levels
from policies.retrieval import Retrieval
from policies.sets.policy_set import documents_for
from policies.sets.source_levels import raised
from policies.trail.masked_ahead import masked_ahead
from sidecar.metrics.metrics import Metrics
from sidecar.platform import eager
from sidecar.platform.eager import Departed, Watch, until_departed, unwatched
from sidecar.policy_cache.policy_view import (
    CandidateRoles,
    FetchFailed,
    MissingDocument,
    PolicyView,
)
from sidecar.recorder import POLICY_SET_STALE, MadeRecord, RecordedDecision, Recorder, Verdict
from sidecar.sessions import ClaimFailed, SessionRegistry
from sidecar.tracing.trace import Tracer
from sidecar.unreadable import UnreadableRequests

log = logging.getLogger(__name__)

# A fetch brings all documents of the first retrieval, and the one that was missing. A second
# fetch is necessary only if the set changes in between, or if the retrievals differ.
_MAX_FETCHES = 3
SLICE = 64
"""The number of retrievals of one request that are decided in one turn of the event loop."""
_SLICED_ATTEMPTS = 3
"""The number of times that a request of many retrievals begins anew because the policy set changed
between its slices, before it is decided in one turn."""
EVALUATE, PROXY = "evaluate_context", "proxy"
"""The ways in, as metrics name them. Other ways are the operations of the sidecar's own port, and
the protocols of check doors."""
_LONG_QUERY = 256
"""The characters up to which a query is short: masking it ends soon."""


def _no_level(_source_id: str) -> None:
    return None


class Enforcer:
    """Decides and records, for the proxy as for the sidecar's own API."""

    def __init__(
        self,
        policies: PolicyView,
        sessions: SessionRegistry,
        recorder: Recorder,
        metrics: Metrics,
        random_bytes: Callable[[int], bytes],
        tracer: Tracer | None = None,
        configured_level: Callable[[str], Sensitivity | None] = _no_level,
    ) -> None:
        """`configured_level` returns the level that the settings give to a source id."""
        self.policies = policies
        self.metrics = metrics
        self.random_bytes = random_bytes
        """Random bytes, each handed out once."""
        self.tracer = tracer
        """Traces requests; None if traces are off."""
        self.candidate_roles = CandidateRoles(policies)
        self.note_retrieval = recorder.note_retrieval
        self.withheld: Callable[[], tuple[str, str] | None] = _nothing
        """Returns the policy name and the reason by which everything is denied; None if nothing is
        withheld."""
        self.key_now: Callable[[Key], Key | None] = lambda key: key
        """Returns a key in its current state, None if it is no longer valid. Raises
        `MissingDocument`."""
        self.speaks_for: Callable[[str | None], bool] = lambda _: True
        """Returns whether the sidecar's own key speaks for an agent; None stands for a call without
        one."""
        self.enrolled = False
        """True if the sidecar got its keys by enrolling: it may then have only its own agent's
        documents."""
        self._sessions = sessions
        self._recorder = recorder
        self._configured_level = configured_level
        self.masking = MaskingTurns(policies.monotonic, partial(asyncio.sleep, 0), asyncio.Event)
        self.unreadable = UnreadableRequests(policies.monotonic, policies.masks, self.masking)

    async def evaluate(self, retrieval: Retrieval, key: Key | None) -> RecordedDecision:
        """Decide, record, and return once the record is durable. Raises `SpoolError` (503) if
        nothing can be recorded. `key` is None if the caller's key is no longer valid."""
        recorded = await self.submit(retrieval, key)
        await recorded.durable
        return recorded

    async def submit(
        self,
        retrieval: Retrieval,
        key: Key | None,
        watch: Watch = unwatched,
        *,
        report_mode: bool = False,
        urgent: bool = False,
        way: str = EVALUATE,
    ) -> RecordedDecision:
        """Like `evaluate`, but without waiting for the disk, for a caller that can use that time.
        `watch` says when the client leaves: no session is claimed for it then, and a long query is
        not masked further (`ConnectionResetError`). With `report_mode`,
        a denial is recorded as one that is forwarded. With `urgent`, masking waits for no other
        call. `way` is how the request came in, for the metric alone."""
        if self.policies.masks():
            [retrieval] = await self._masked((retrieval,), watch, urgent=urgent)
        try:
            key = self._still_valid(key)
            # Most retrievals need nothing but what is here.
            if not self.must_claim(retrieval, key):
                recorded = self.decide(retrieval, key, report_mode=report_mode)
                self.metrics.by_way.add(way, recorded.decision.decision)
                return recorded
        except MissingDocument:
            pass  # it is fetched now
        together = await self.submit_together(
            (retrieval,), key, watch, report_mode=report_mode, urgent=urgent, way=way
        )
        return together[0]

    async def submit_together(
        self,
        retrievals: Sequence[Retrieval],
        key: Key | None,
        watch: Watch = unwatched,
        *,
        report_mode: bool = False,
        urgent: bool = False,
        way: str = EVALUATE,
    ) -> list[RecordedDecision]:
        """Decide the retrievals of one request, at least one, all by the same caller.

        If all pass, or if denials are only reported, the records are stored together and each has
        its `RecordedDecision`, in order. Otherwise the result is the first denial alone: nothing
        is retrieved, and an ALLOW beside it would record a retrieval that never took place.
        """
        if self.policies.masks():
            retrievals = await self._masked(retrievals, watch, urgent=urgent)
        decided = await self._submit_masked(retrievals, key, watch, report_mode=report_mode)
        for recorded in decided:
            self.metrics.by_way.add(way, recorded.decision.decision)
        return decided

    async def _submit_masked(
        self, retrievals: Sequence[Retrieval], key: Key | None, watch: Watch, *, report_mode: bool
    ) -> list[RecordedDecision]:
        try:
            for _ in range(_MAX_FETCHES):
                try:
                    await self._claim_session(retrievals, self._still_valid(key), watch)
                    key = self._still_valid(key)
                    if len(retrievals) > SLICE:
                        return await self._decide_many(retrievals, key, report_mode)
                    return self._decide_together(retrievals, key, report_mode)
                except MissingDocument as missing:
                    absent = missing
                await self._fetch(absent, retrievals[0])
            reason = "the policy set changes faster than its documents can be fetched"
        except FetchFailed as error:
            reason = f"the policy set's documents can't be fetched: {error}"
        except (ClaimFailed, Departed) as error:
            reason = f"the session can't be claimed: {error}"
        verdicts = [_denied(each, "evaluation_error", reason) for each in retrievals]
        return self._conclude(verdicts, report_mode)

    async def _claim_session(
        self, retrievals: Sequence[Retrieval], key: Key | None, watch: Watch
    ) -> None:
        # All retrievals of a request name the same session, so one claim serves them all.
        new = next((each for each in retrievals if self.must_claim(each, key)), None)
        if new is not None:
            # The claim may take seconds. Everything is judged again afterwards, by the policy set
            # of that moment: a policy revoked in the meantime allows nothing.
            await eager.within_task()
            async with until_departed(watch):
                await self._sessions.claim(new, masking=self.policies.masks())

    async def _masked(
        self, retrievals: Sequence[Retrieval], watch: Watch, *, urgent: bool
    ) -> list[Retrieval]:
        if all(len(each.query or "") <= _LONG_QUERY for each in retrievals):
            return await masked_ahead(self.masking, retrievals, urgent=urgent)
        await eager.within_task()
        loop = asyncio.get_running_loop()
        under_way: asyncio.Timeout | None = None

        def end() -> None:
            if under_way is not None:
                under_way.reschedule(loop.time())

        try:
            async with asyncio.timeout(None) as under_way:
                watch(end)
                return await masked_ahead(self.masking, retrievals, urgent=urgent)
        except TimeoutError:
            raise ConnectionResetError("the client left while its query was masked") from None
        finally:
            under_way = None

    def _still_valid(self, key: Key | None) -> Key | None:
        # INVARIANT: looked up after each wait. Texts that take seconds to mask, or a slow claim,
        # must not delay the moment when a revoked key stops working.
        return None if key is None else self.key_now(key)

    def must_claim(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Return whether the call names a session that is new here and that it may claim. If so,
        `submit` has to ask the control API first; otherwise `decide` can answer at once. Raises
        `MissingDocument`."""
        session_id = retrieval.session_id
        if session_id is None or key is None or self._sessions.holds(session_id):
            return False
        if self.policies.stale():
            return False
        try:
            # INVARIANT: a call that fails checks 1 to 4 claims nothing (`CONTRACT.md`, Sessions).
            # Otherwise an agent could take the sessions of others by naming them first.
            facts = gather(self.policies.policy_set, key, retrieval)
            return admitted(retrieval, facts) and self.speaks_for(retrieval.agent_id)
        except MissingDocument:
            raise
        except Exception:
            log.exception("a check failed: nothing is claimed")
            return False  # `decide` fails in the same way, and records it

    def decide(
        self, retrieval: Retrieval, key: Key | None, *, report_mode: bool = False
    ) -> RecordedDecision:
        """Decide by what is known at this moment, and hand the record to the spool. Raises
        `MissingDocument`, and decides nothing, if a document that it needs is not here yet."""
        return self._decide_together((retrieval,), key, report_mode)[0]

    def _decide_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision]:
        """Decide all in one turn of the loop, so by one policy set. Raises `MissingDocument` before
        anything is recorded."""
        monotonic = self.policies.monotonic
        started = monotonic()
        verdicts = [self._verdict(each, key, started) for each in retrievals]
        recorded = self._conclude(verdicts, report_mode)
        # Each decision is observed once, so the histogram's count is the number of decisions.
        took = (monotonic() - started) / len(recorded)
        for _ in recorded:
            self.metrics.evaluate_seconds.observe(took)
        return recorded

    async def _decide_many(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision]:
        """Like `_decide_together`, but lets others run in between. Raises `MissingDocument`."""
        for _ in range(_SLICED_ATTEMPTS):
            decided = await self._decide_in_slices(retrievals, key, report_mode)
            if decided is not None:
                return decided
            key = self._still_valid(key)
        return self._decide_together(retrievals, key, report_mode)

    async def _decide_in_slices(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision] | None:
        """Decide slice by slice. Returns None, and records nothing, if it has to begin anew."""
        monotonic, policy_set = self.policies.monotonic, self.policies.policy_set
        revision, took = policy_set.revision, 0.0
        report_mode = self.may_report(report_mode)
        made: list[MadeRecord] = []
        for at in range(0, len(retrievals), SLICE):
            if at:
                await asyncio.sleep(0)
            # INVARIANT: all is decided by one policy set, that of the turn in which it is stored.
            if policy_set.revision != revision or self._still_valid(key) != key:
                return None
            started = monotonic()
            verdicts = [self._verdict(each, key, started) for each in retrievals[at : at + SLICE]]
            denied = any(each.decision.decision == "DENY" for each in verdicts)
            if denied and not report_mode:
                return self._conclude(verdicts, report_mode)
            made += self._recorder.make(verdicts, report_mode=report_mode)
            took += monotonic() - started
        # What holds for all of them may have changed too: the session, or the set's age.
        first, again = made[0].verdict, self._verdict(retrievals[0], key, monotonic())
        if first.decision[:2] != again.decision[:2]:
            return None
        recorded = self._recorder.store(made)
        for _ in recorded:
            self.metrics.evaluate_seconds.observe(took / len(recorded))
        return recorded

    def _conclude(self, verdicts: Sequence[Verdict], report_mode: bool) -> list[RecordedDecision]:
        """Conclude the verdicts of one request: a denial denies all, unless it is only reported."""
        report_mode = report_mode and self.may_report(report_mode)
        if len(verdicts) > 1 and not report_mode:
            denied = next((each for each in verdicts if each.decision.decision == "DENY"), None)
            verdicts = verdicts if denied is None else (denied,)
        return self._recorder.conclude(verdicts, report_mode=report_mode)

    def _verdict(self, retrieval: Retrieval, key: Key | None, now: float) -> Verdict:
        retrieval = self.at_configured_level(retrieval)
        if (withheld := self.withheld()) is not None:
            return _denied(retrieval, *withheld)
        if self.policies.freshness.stale(now):
            return _denied(retrieval, POLICY_SET_STALE, self.policies.freshness.reason(now))
        if key is None:
            why = "the agent's API key is not valid, or not any more"
            return _denied(retrieval, "key_not_valid", why)
        try:
            facts = self._facts(retrieval, key)
            foreign = not self.speaks_for(retrieval.agent_id)
            retrieval = raised(retrieval, facts.sources)
            decision = evaluate(retrieval, facts)
        except MissingDocument:
            raise
        except Exception:
            log.exception("a check failed: the retrieval is denied")
            # The details stay in the log: the agent reads the reason. The gathered facts did not
            # lead to this answer, so they stay out of the record.
            return _denied(retrieval, "evaluation_error", "a check failed; see the sidecar's log")
        # INVARIANT: no record says ALLOW for an agent that the sidecar's own key does not speak
        # for. The control API refuses such a record, so the retrieval would leave no trace. Its
        # facts stay out of the record: the documents of other agents may not be here.
        if foreign and facts.settings.frozen_at is not None:
            return _denied(retrieval, decision.policy_name, decision.reason)
        if foreign:
            return _denied(retrieval, "key_agent_binding", _foreign(retrieval.agent_id))
        # INVARIANT: nothing is allowed in a session that is not claimed. Check 5 can't ensure it:
        # it takes an unknown session for one that this call would own.
        claimed = retrieval.session_id is None or facts.session is not None
        if decision.decision == "ALLOW" and not claimed:
            return _denied(retrieval, "evaluation_error", "the session is not claimed")
        if not facts.settings.candidates:
            return Verdict(retrieval, decision, facts)
        # This comes after the decision, which stands whatever the candidates say.
        differing = differences(self.candidate_roles, retrieval, facts, decision)
        return Verdict(retrieval, decision, facts, differing)

    async def refuse(
        self,
        retrieval: Retrieval,
        policy_name: str,
        reason: str,
        *,
        report_mode: bool = False,
        way: str = EVALUATE,
    ) -> RecordedDecision:
        """Record a DENY that none of the ten checks made, such as for an unreadable request."""
        recorded = await self.deny(retrieval, policy_name, reason, report_mode=report_mode, way=way)
        await recorded.durable
        return recorded

    async def deny(
        self,
        retrieval: Retrieval,
        policy_name: str,
        reason: str,
        *,
        report_mode: bool = False,
        way: str = EVALUATE,
    ) -> RecordedDecision:
        """Like `refuse`, but without waiting for the disk."""
        if self.policies.masks():
            [retrieval] = await masked_ahead(self.masking, (retrieval,))
        recorded = self._conclude([_denied(retrieval, policy_name, reason)], report_mode)[0]
        self.metrics.by_way.add(way, recorded.decision.decision)
        return recorded

    async def prepare(self, retrieval: Retrieval, key: Key | None) -> None:
        """Fetch what `permits` needs for a retrieval by this role and agent, from any source. If it
        can't be fetched, `permits` returns False."""
        try:
            if key is not None:
                gather(self.policies.policy_set, key, retrieval)
            return
        except MissingDocument as missing:
            absent = missing
        except Exception:
            log.exception("a check failed: `permits` will come to the same")
            return
        # If it fails, `permits` then misses the same document, and permits nothing.
        with contextlib.suppress(FetchFailed):
            await self._fetch(absent, retrieval)

    async def _fetch(self, missing: MissingDocument, retrieval: Retrieval) -> None:
        await eager.within_task()
        # All that the retrieval needs at once: each missing document costs a round trip.
        names = {missing.name, *documents_for(retrieval)}
        await self.policies.document_fetcher.fetch(names)

    def permits(self, retrieval: Retrieval, key: Key | None) -> bool:
        """Return whether `evaluate` would allow this now, by the documents that are here (see
        `prepare`). Records nothing and claims no session: use it only to filter lists, since it
        lets no data out."""
        facts = self.outlook(retrieval, key)
        return facts is not None and allows(self.at_configured_level(retrieval), facts)

    def outlook(self, retrieval: Retrieval, key: Key | None) -> Facts | None:
        """Return the facts that `permits` uses, which are the same for every source that this
        caller may ask for; None if nothing is permitted."""
        if key is None or self.policies.stale():
            return None
        try:
            return self._facts(retrieval, key) if self.speaks_for(retrieval.agent_id) else None
        except MissingDocument:
            return None  # `prepare` could not fetch it
        except Exception:
            log.exception("a check failed: nothing is shown in a list")
            return None

    def explain(self, retrieval: Retrieval, key: Key | None, decision: Decision) -> dict[str, Any]:
        """Explain `decision`. Call it in the same turn of the loop in which the decision was
        made."""
        reached = decision.findings[0].outcome is not CheckOutcome.not_reached
        known = reached or decision.policy_name == TENANT_FROZEN
        facts = self._facts(retrieval, key) if known and key is not None else None
        return explain(self.at_configured_level(retrieval), facts, decision)

    def at_configured_level(self, retrieval: Retrieval) -> Retrieval:
        """Return the retrieval, raised to the level that the settings give to its source."""
        # INVARIANT: a source that the settings know has its level at every way in. The proxy knows
        # it from the request's route, and says so in `levels`.
        if retrieval.levels is not None:
            return retrieval
        configured = self._configured_level(retrieval.source_id)
        if configured is None:
            return retrieval
        levels = Levels(retrieval.sensitivity_level, configured)
        return retrieval._replace(sensitivity_level=levels.held, levels=levels)

    def may_report(self, report_mode: bool) -> bool:
        """Return whether a source in mode `report` forwards denied requests now."""
        # An administrator who freezes a tenant means that nothing is read.
        return report_mode and not self.policies.policy_set.frozen()

    def _facts(self, retrieval: Retrieval, key: Key) -> Facts:
        session_id = retrieval.session_id
        session = None if session_id is None else self._sessions.known(session_id)
        facts = gather(self.policies.policy_set, key, retrieval, session)
        return _with_own_role(facts, retrieval) if self.enrolled else facts


def allows(retrieval: Retrieval, facts: Facts) -> bool:
    """Return whether the facts allow a retrieval. Records nothing: it filters the names in a list.
    Pure, so another thread may call it."""
    try:
        return evaluate(retrieval, facts).decision == "ALLOW"
    except Exception:
        log.exception("a check failed: the name is left out of a list")
        return False


def _with_own_role(facts: Facts, retrieval: Retrieval) -> Facts:
    """Return the facts, without the role if the agent may not act in it."""
    # INVARIANT: a decision is the same with the documents of one agent as with all of the tenant's.
    # Checks 2 and 3 deny such a call, whatever the policies of the role are.
    agent = facts.agent
    if agent is not None and retrieval.agent_role in agent.permitted_roles:
        return facts
    return facts._replace(role=None)


def _foreign(agent_id: str | None) -> str:
    named = "none" if agent_id is None else f"`{agent_id}`"
    return f"the sidecar's key speaks for other agents, and the call names {named}"


def _nothing() -> None:
    return None


def _denied(retrieval: Retrieval, policy_name: str, reason: str) -> Verdict:
    """Return a denial outside the ten checks, which rests on no facts."""
    return Verdict(retrieval, refuse(policy_name, reason), None)
