"""Turns decisions into audit records and puts them into the spool. The records of one request are
stored together or not at all. Knows the spool and the metrics; decides nothing."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from policies.candidates import CandidateDecision
from policies.checks.finding import Facts
from policies.evaluate import Decision, refuse
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.retrieval import Retrieval
from policies.trail.lineage import retrieval_lineage
from policies.trail.record import REPORT_PREFIX, Record, decision_record, heartbeat_record
from sidecar.metrics.metrics import Metrics
from sidecar.spool import PlacedRecord, Spool, SpoolError, SpoolFull
from sidecar.tracing import current_trace

log = logging.getLogger(__name__)

POLICY_SET_STALE = "policy_set_stale"
AUDIT_UNAVAILABLE = "audit_unavailable"
_OUTAGES = frozenset((POLICY_SET_STALE, AUDIT_UNAVAILABLE))
"""The policy names of denials that an outage of the sidecar causes."""

_ID_BYTES = 10  # a UUIDv7's random part (RFC 9562, section 5.7)
_SALT_BYTES = 32


def is_outage(decision: Decision) -> bool:
    """Return whether this denial only says that the sidecar could not decide or record, so that the
    same request may be allowed later."""
    # A policy may have such a name too. What it denies has gone through the checks.
    return decision.policy_name in _OUTAGES and decision.check is None


class RecordedDecision(NamedTuple):
    """A decision whose record is on its way to disk. Do not act on it before `durable` is done. If
    `durable` raises a `SpoolError`, the record is lost, and the decision must not be used."""

    decision: Decision
    event_id: str
    core: bytes
    """The hash of the spooled record. Lineage entries cite the record by it."""
    durable: asyncio.Future[None]
    stored: bool = True
    """False if the spool, in mode `best_effort`, had to drop the record: no lineage may cite it."""
    report_only: bool = False
    """True for a denial of a request that is forwarded all the same, since its source is in mode
    `report`."""

    @property
    def passes(self) -> bool:
        """True if the request may be forwarded: it is allowed, or its denial is only reported."""
        return self.report_only or self.decision.decision == "ALLOW"

    def evaluation(self) -> dict[str, str]:
        """Return the four members with which the API answers an evaluation."""
        decision, policy_name, reason = self.decision[:3]
        return {
            "decision": decision,
            "policy_name": policy_name,
            "reason": reason,
            "event_id": self.event_id,
        }


class Verdict(NamedTuple):
    """A decision that is not recorded yet, with the facts it rests on and the candidate policies
    that decide otherwise."""

    retrieval: Retrieval
    decision: Decision
    facts: Facts | None
    candidates: Sequence[CandidateDecision] = ()


class MadeRecord(NamedTuple):
    """A decision with the record made for it, before the record is in the spool."""

    verdict: Verdict
    decision: Decision
    record: Record
    report_only: bool


class Recorder:
    """Makes the audit records of decisions, and stores them in the spool. `masks` returns whether
    to mask personal data in the record of a decision that rests on no facts."""

    def __init__(
        self,
        spool: Spool,
        metrics: Metrics,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        masks: Callable[[], bool],
    ) -> None:
        self._spool = spool
        self._metrics = metrics
        self._now = clock.now
        self._random_bytes = random_bytes
        self._masks = masks
        self._noted_revision = 0

    def conclude(self, verdicts: Sequence[Verdict], *, report_mode: bool) -> list[RecordedDecision]:
        """Record the verdicts of one request. Each decision makes one record, one metric, one log
        line, and one span if it is traced. The records are stored together or not at all."""
        return self.store(self.make(verdicts, report_mode=report_mode))

    def make(self, verdicts: Sequence[Verdict], *, report_mode: bool) -> list[MadeRecord]:
        """Make the records of these verdicts, which may be a part of one request's. Nothing is
        stored yet."""
        now = self._now()
        return [self._make_record(each, report_mode, now) for each in verdicts]

    def store(self, made: Sequence[MadeRecord]) -> list[RecordedDecision]:
        """Store the records of one request, as returned by `make`."""
        records: list[Record] = []
        # INVARIANT: a request that is forwarded takes no room that is kept for denials.
        refused = True
        for each in made:
            records.append(each.record)
            if each.report_only or each.decision.decision == "ALLOW":
                refused = False
        try:
            placed = self._spool.put_together(records, denial=refused)
        except SpoolFull:
            if refused:
                raise
            # The reserve is for this case: a request that can't be recorded as allowed becomes a
            # denied one, which can. It is denied as a whole, so it has one record.
            full = refuse(AUDIT_UNAVAILABLE, "the spool is full: only denials can be recorded")
            denied = Verdict(made[0].verdict.retrieval, full, None)
            return self.conclude((denied,), report_mode=False)
        # The records have their numbers. If we die before they are on disk, no answer was sent, and
        # recovery cuts all of them or finds all of them. If we die after, they ship at the next
        # start.
        facts = made[-1].verdict.facts
        if facts is not None:
            self._noted_revision = facts.revision
        return [self._report(each, place) for each, place in zip(made, placed, strict=True)]

    def _make_record(self, verdict: Verdict, report_mode: bool, now: int) -> MadeRecord:
        retrieval, decision, facts, candidates = verdict
        report_only = report_mode and decision.decision == "DENY"
        if report_only:
            decision = decision._replace(reason=REPORT_PREFIX + decision.reason)
        # One draw for both: this runs for every decision.
        drawn = self._random_bytes(_ID_BYTES + _SALT_BYTES)
        record = decision_record(
            retrieval,
            decision,
            facts,
            event_id=uuid7(now, drawn),
            salt=drawn[_ID_BYTES:],
            # Facts carry their own masking setting.
            masking=self._masks() if facts is None else None,
            candidates=candidates,
        )
        return MadeRecord(verdict, decision, record, report_only)

    def _report(self, made: MadeRecord, placed: PlacedRecord) -> RecordedDecision:
        verdict, decision, record, report_only = made
        core, durable, stored = placed
        # Counted only once the record is in the spool: what can't be recorded was not decided.
        self._metrics.decided(decision, report_only=report_only)
        trace = current_trace()
        if trace is not None:
            trace.decided(verdict.retrieval, decision, record.eid)
        if log.isEnabledFor(logging.DEBUG):
            answer, policy_name, reason = decision[:3]
            log.debug("%s %s by %s: %s", record.eid, answer, policy_name, reason)
        return RecordedDecision(decision, record.eid, core, durable, stored, report_only)

    def note_revision(self, revision: int) -> bool:
        """Record a heartbeat at this revision, unless the last decision or heartbeat was already at
        it. Returns False if the spool does not accept the record."""
        if revision in (0, self._noted_revision):
            return True
        record_id = uuid7(self._now(), self._random_bytes(_ID_BYTES))
        record = heartbeat_record(revision, record_id=record_id)
        try:
            self._spool.put(record, denial=False, urgent=False)
        except SpoolError:
            return False  # the spool reports by itself that it is full, or that its disk fails
        self._noted_revision = revision
        return True

    def note_retrieval(
        self, pending: RecordedDecision, detail: dict[str, int | str], outcome: str
    ) -> None:
        """Record the result of an allowed retrieval, as a lineage entry that cites the decision.
        The caller already has its answer, so an entry that does not fit is only counted as lost."""
        if not pending.stored:
            # The log will never have the event, so nothing could cite it.
            self._metrics.lineage_lost.add()
            return
        record_id = uuid7(self._now(), self._random_bytes(_ID_BYTES))
        event_id, core = pending.event_id, pending.core
        record = retrieval_lineage(event_id, core, detail, outcome, record_id=record_id)
        try:
            # Not urgent: no answer waits for it, and the spool reports a failing disk itself.
            self._spool.put(record, denial=False, urgent=False)
        except SpoolError as error:
            self._metrics.lineage_lost.add()
            log.warning("lineage of event %s is lost: %s", event_id, error)
