"""Turns decisions into records that the spool holds. Knows the spool and the metrics; decides
nothing. The records of one request find their place together, or none of them does.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from policies.checks.finding import Facts
from policies.evaluate import Decision, refuse
from policies.ground.clock import Clock
from policies.ground.ids import uuid7
from policies.retrieval import Retrieval
from policies.trail.record import Record, decision_record, retrieval_lineage
from sidecar.metrics.metrics import Metrics
from sidecar.spool import Spool, SpoolError, SpoolFull

log = logging.getLogger(__name__)

LET_THROUGH = "report mode, forwarded: "
"""What the reason of a denial begins with that was let through (`mode: report`)."""

_ID_ENTROPY = 10
_SALT = 32


class RecordedDecision(NamedTuple):
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


class Verdict(NamedTuple):
    """A decision that is not recorded yet, and the facts that it rests on."""

    retrieval: Retrieval
    decision: Decision
    facts: Facts | None


class _Recorded(NamedTuple):
    """A decision and its record, before the spool has it. `refused` where nothing goes on."""

    decision: Decision
    event_id: str
    record: Record
    let_through: bool
    refused: bool


class Recorder:
    """`masks` says whether personal data are masked where a decision rests on no facts."""

    def __init__(
        self,
        spool: Spool,
        metrics: Metrics,
        clock: Clock,
        entropy: Callable[[int], bytes],
        masks: Callable[[], bool],
    ) -> None:
        self._spool = spool
        self._metrics = metrics
        self._now = clock.now
        self._entropy = entropy
        self._masks = masks

    def conclude(self, verdicts: Sequence[Verdict], *, reports: bool) -> list[RecordedDecision]:
        """One decision: one record, one metric, one log line. The verdicts of one request find a
        place in the spool together, or none of them does."""
        made = [self._recorded(each, reports) for each in verdicts]
        # INVARIANT: what goes on to the data source takes no room that is kept for denials.
        refused = all(each.refused for each in made)
        try:
            placed = self._spool.put_together([each.record for each in made], denial=refused)
        except SpoolFull:
            if refused:
                raise
            # Room is kept back for this: a request that can't be recorded as allowed becomes a
            # denied one that can. It is denied as a whole, so it has one record.
            full = refuse("audit_unavailable", "the spool is full: only denials can be recorded")
            return self.conclude((Verdict(verdicts[0].retrieval, full, None),), reports=False)
        # The records have their numbers. If we die before they are on disk nobody has heard an
        # answer, and recovery cuts all of them or finds all of them; if after, they ship at the
        # next start.
        return [self._told(each, *place) for each, place in zip(made, placed, strict=True)]

    def _recorded(self, verdict: Verdict, reports: bool) -> _Recorded:
        retrieval, decision, facts = verdict
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
        return _Recorded(decision, event_id, record, let_through, denial and not let_through)

    def _told(
        self, made: _Recorded, core: bytes, durable: asyncio.Future[None], kept: bool
    ) -> RecordedDecision:
        decision, event_id, let_through = made.decision, made.event_id, made.let_through
        self._metrics.decided(decision, let_through=let_through)
        if log.isEnabledFor(logging.DEBUG):
            answer, policy_name, reason = decision[:3]
            log.debug("%s %s by %s: %s", event_id, answer, policy_name, reason)
        return RecordedDecision(decision, event_id, core, durable, kept, let_through)

    def note_retrieval(
        self, pending: RecordedDecision, detail: dict[str, int | str], outcome: str
    ) -> None:
        """Record what an allowed retrieval returned, as lineage on its event. The caller has its
        answer already, so lineage that can't be kept is counted and changes nothing."""
        if not pending.kept:
            self._metrics.lineage_lost.add()
            return
        record_id = uuid7(self._now(), self._entropy(_ID_ENTROPY))
        event_id, core = pending.event_id, pending.core
        record = retrieval_lineage(event_id, core, detail, outcome, record_id=record_id)
        try:
            # The spool reports a failing disk itself; nobody waits for this record.
            self._spool.put(record, denial=False, hurry=False)
        except SpoolError as error:
            self._metrics.lineage_lost.add()
            log.warning("lineage of event %s is lost: %s", event_id, error)
