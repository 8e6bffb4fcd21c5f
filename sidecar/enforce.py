"""Decides each retrieval, records the decision, and only then lets it be answered: the product in
one file. The steps:

    mask         personal data in its texts, before anything is decided: it may take several turns
    fresh        is the policy set recent enough to decide by? A stale one denies everything
    facts        who asks, and what the policy set says about them: local, microseconds
    session      who owns it: the control API is asked the first time it is named
    evaluate     the ten checks, pure (`policies/evaluate.py`)
    candidates   what the tenant's candidate policies decide otherwise; changes no answer
    record       the decision, the request and the facts it rests on, chained into the spool
    durable      the record is on disk: now, and not before, the caller gets the answer

Any failure on the way is a DENY, recorded like any other. If not even that can be recorded, there
is no decision, and the caller gets `Unavailable` (503). A retrieval becomes an ALLOW only through
`Recorder.conclude`, which always makes a record.

Knows the order of the steps, which is why they are in one file. Knows nothing of HTTP, of files, or
of how the policy set gets here.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from policies.candidates import differences
from policies.definitions.model import Key
from policies.evaluate import evaluate, refuse
from policies.ground.masking import MaskingTurns
from policies.retrieval import Retrieval
from policies.sets.source_levels import at_effective_level
from policies.trail.masked_ahead import masked_ahead
from sidecar.decision_preview import DecisionPreview
from sidecar.metrics.metrics import Metrics
from sidecar.platform import eager
from sidecar.platform.eager import Departed, Watch, until_departed, unwatched
from sidecar.policy_cache.policy_view import (
    CandidateRoles,
    FetchFailed,
    MissingDocument,
)
from sidecar.recorder import POLICY_SET_STALE, MadeRecord, RecordedDecision, Recorder, Verdict
from sidecar.sessions import ClaimFailed
from sidecar.tracing import Tracer
from sidecar.unmapped import UnreadableRequests

log = logging.getLogger(__name__)

# A fetch brings all documents of the first retrieval, and the one that was missing. A second
# fetch is necessary only if the set changes in between, or if the retrievals differ.
_MAX_FETCHES = 3
SLICE = 64
"""The number of retrievals of one request that are decided in one turn of the event loop."""
_SLICED_ATTEMPTS = 3
"""The number of times that a request of many retrievals is started again because the policy set
changed between two slices. After that, all of them are decided in one turn of the event loop."""
EVALUATE, PROXY = "evaluate_context", "proxy"
"""Two of the entry points for requests, as metrics name them. The others are the operations of the
sidecar's own port, and the protocols of check doors."""
_LONG_QUERY = 256
"""The most characters of a short query, parameters of a statement included. Masking a longer one
takes so long that it stops if the client leaves."""


class EntryPoint(NamedTuple):
    """The entry point through which a request came in, and the rules that hold for the request."""

    name: str = EVALUATE
    """The operation, or the protocol of a check door. Only the metric uses it."""
    watch: Watch = unwatched
    """Reports that the client has left: then no session is claimed for the request, and masking of
    a long query stops."""
    report_mode: bool = False
    """True if the source is in mode `report`: a denied request is forwarded, and its record says
    so."""
    urgent: bool = False
    """True if the texts of this request are masked before those of other requests."""


_PLAIN = EntryPoint()


class Enforcer:
    """Decides retrievals and records the decisions, for the proxy as for the sidecar's own API.
    Callers use one of three members:

    decide    may these retrievals of one request happen?
    deny      the request can't be judged by the checks: it is unreadable, unmapped or unclassified
    preview   what would be decided now? For lists, filters and explanations; nothing is recorded
    """

    def __init__(
        self,
        preview: DecisionPreview,
        recorder: Recorder,
        metrics: Metrics,
        random_bytes: Callable[[int], bytes],
        tracer: Tracer | None = None,
    ) -> None:
        self.preview = preview
        self.policies = policies = preview.policies
        self.metrics = metrics
        self.random_bytes = random_bytes
        """Returns this many random bytes, never the same ones twice."""
        self.tracer = tracer
        """The maker of traces; None if tracing is off."""
        self.candidate_roles = CandidateRoles(policies)
        self.note_retrieval = recorder.note_retrieval
        self.denial_of_everything: Callable[[], tuple[str, str] | None] = lambda: None
        """Returns the policy name and the reason of every denial while the sidecar denies
        everything; None if it decides normally."""
        self.key_now: Callable[[Key], Key | None] = lambda key: key
        """Returns the key in its current state; None if it is no longer valid. Raises
        `MissingDocument`."""
        self._recorder = recorder
        self._masking = MaskingTurns(policies.monotonic, partial(asyncio.sleep, 0), asyncio.Event)
        self.unreadable = UnreadableRequests(policies.monotonic, policies.masks, self._masking)

    async def decide(
        self, retrievals: Sequence[Retrieval], key: Key | None, entry_point: EntryPoint = _PLAIN
    ) -> list[RecordedDecision]:
        """Decide the retrievals of one request: at least one, and all by the same caller. `key` is
        None if the caller's key is no longer valid.

        If all pass, or if denials are only reported, the records are stored together and each has
        its `RecordedDecision`, in order. Otherwise the result is the first denial alone: nothing is
        retrieved, and an ALLOW beside it would record a retrieval that never took place.

        Does not wait for the disk: the caller waits for `durable` before it answers. Raises
        `SpoolError` (503) if nothing can be recorded, and `ConnectionResetError` if the client
        leaves while a long query is masked.
        """
        if self.policies.masks():
            retrievals = await self._masked(retrievals, entry_point)
        try:
            decided = await self._decide_fetching(retrievals, key, entry_point)
        except FetchFailed as error:
            reason = f"the policy set's documents can't be fetched: {error}"
            decided = self._conclude_failed(retrievals, reason, entry_point)
        except (ClaimFailed, Departed) as error:
            reason = f"the session can't be claimed: {error}"
            decided = self._conclude_failed(retrievals, reason, entry_point)
        for recorded in decided:
            self.metrics.decisions_by_entry_point.add(entry_point.name, recorded.decision.decision)
        return decided

    async def deny(
        self, retrieval: Retrieval, policy_name: str, reason: str, entry_point: EntryPoint = _PLAIN
    ) -> RecordedDecision:
        """Record a DENY that none of the ten checks made, such as for an unreadable request. Like
        `decide`, this does not wait for the disk."""
        if self.policies.masks():
            [retrieval] = await masked_ahead(self._masking, (retrieval,))
        denied = _denied(retrieval, policy_name, reason)
        [recorded] = self._conclude([denied], entry_point.report_mode)
        self.metrics.decisions_by_entry_point.add(entry_point.name, recorded.decision.decision)
        return recorded

    async def _decide_fetching(
        self, retrievals: Sequence[Retrieval], key: Key | None, entry_point: EntryPoint
    ) -> list[RecordedDecision]:
        """Decide retrievals whose texts are masked. Claims the session and fetches missing
        documents if that is necessary, which for most requests it is not."""
        for _ in range(_MAX_FETCHES):
            try:
                valid = self._still_valid(key)
                for each in retrievals:
                    if self.preview.must_claim(each, valid):
                        # All retrievals of a request name the same session, so one claim serves
                        # them all. It may take seconds. Everything is judged again afterwards, by
                        # the policy set of that moment: a policy revoked in the meantime allows
                        # nothing.
                        await self._claim_session(each, entry_point.watch)
                        valid = self._still_valid(key)
                        break
                if len(retrievals) > SLICE:
                    return await self._decide_many(retrievals, valid, entry_point.report_mode)
                return self._decide_together(retrievals, valid, entry_point.report_mode)
            except MissingDocument as missing:
                absent = missing
            await self.preview.fetch(absent, retrievals[0])
        reason = "the policy set changes faster than its documents can be fetched"
        return self._conclude_failed(retrievals, reason, entry_point)

    async def _claim_session(self, retrieval: Retrieval, watch: Watch) -> None:
        await eager.within_task()
        async with until_departed(watch):
            await self.preview.sessions.claim(retrieval, masking=self.policies.masks())

    async def _masked(
        self, retrievals: Sequence[Retrieval], entry_point: EntryPoint
    ) -> list[Retrieval]:
        if not any(map(_is_long, retrievals)):
            return await masked_ahead(self._masking, retrievals, urgent=entry_point.urgent)
        await eager.within_task()
        loop = asyncio.get_running_loop()
        under_way: asyncio.Timeout | None = None

        def end() -> None:
            if under_way is not None:
                under_way.reschedule(loop.time())

        try:
            async with asyncio.timeout(None) as under_way:
                entry_point.watch(end)
                return await masked_ahead(self._masking, retrievals, urgent=entry_point.urgent)
        except TimeoutError:
            raise ConnectionResetError("the client left while its query was masked") from None
        finally:
            under_way = None

    def _still_valid(self, key: Key | None) -> Key | None:
        # INVARIANT: looked up after each wait. Texts that take seconds to mask, or a slow claim,
        # must not delay the moment when a revoked key stops working.
        return None if key is None else self.key_now(key)

    def _decide_together(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision]:
        """Decide all retrievals in one turn of the event loop, so by one policy set. Raises
        `MissingDocument` before anything is recorded."""
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
        """Decide like `_decide_together`, but let other tasks run in between. Raises
        `MissingDocument`."""
        for _ in range(_SLICED_ATTEMPTS):
            decided = await self._decide_in_slices(retrievals, key, report_mode)
            if decided is not None:
                return decided
            key = self._still_valid(key)
        return self._decide_together(retrievals, key, report_mode)

    async def _decide_in_slices(
        self, retrievals: Sequence[Retrieval], key: Key | None, report_mode: bool
    ) -> list[RecordedDecision] | None:
        """Decide the retrievals in slices of `SLICE`, and yield to other tasks between two slices.
        Returns None, and records nothing, if the policy set or the key changed in between, so that
        the caller has to start again."""
        monotonic, policy_set = self.policies.monotonic, self.policies.policy_set
        revision, took = policy_set.revision, 0.0
        report_mode = self.preview.may_report(report_mode)
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
        """Record the verdicts of one request. If one is a denial, only the first denial is recorded
        and returned, unless denials are only reported."""
        report_mode = report_mode and self.preview.may_report(report_mode)
        if len(verdicts) > 1 and not report_mode:
            denied = next((each for each in verdicts if each.decision.decision == "DENY"), None)
            verdicts = verdicts if denied is None else (denied,)
        return self._recorder.conclude(verdicts, report_mode=report_mode)

    def _conclude_failed(
        self, retrievals: Sequence[Retrieval], reason: str, entry_point: EntryPoint
    ) -> list[RecordedDecision]:
        verdicts = [_denied(each, "evaluation_error", reason) for each in retrievals]
        return self._conclude(verdicts, entry_point.report_mode)

    def _verdict(self, retrieval: Retrieval, key: Key | None, now: float) -> Verdict:
        preview = self.preview
        retrieval = preview.at_configured_level(retrieval)
        if (denial := self.denial_of_everything()) is not None:
            return _denied(retrieval, *denial)
        if self.policies.freshness.stale(now):
            return _denied(retrieval, POLICY_SET_STALE, self.policies.freshness.reason(now))
        if key is None:
            why = "the agent's API key is not valid, or not any more"
            return _denied(retrieval, "key_not_valid", why)
        try:
            facts = preview.facts(retrieval, key)
            foreign = not preview.speaks_for(retrieval.agent_id)
            retrieval = at_effective_level(retrieval, facts.sources)
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


def _is_long(retrieval: Retrieval) -> bool:
    mark = retrieval.statement
    parameters = None if mark is None else mark.parameters
    return len(retrieval.query or "") + len(parameters or "") > _LONG_QUERY


def _foreign(agent_id: str | None) -> str:
    named = "none" if agent_id is None else f"`{agent_id}`"
    return f"the sidecar's key speaks for other agents, and the call names {named}"


def _denied(retrieval: Retrieval, policy_name: str, reason: str) -> Verdict:
    """Return a denial that none of the ten checks made. It rests on no facts."""
    return Verdict(retrieval, refuse(policy_name, reason), None)
