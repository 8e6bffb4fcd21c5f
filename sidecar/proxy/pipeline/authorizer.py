"""Asks whether a request may happen, and makes every refusal a recorded one.

A request concerns a set of sources, and every one must be allowed (data-sources.md R4). What can't
be read, told or classed is denied under a name of its own. Knows the agent, the source's settings
and the enforcer. Knows nothing of bytes or connections.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident

from policies.checks.finding import Facts
from policies.ground.errors import SluiceError
from policies.ground.json_body import identifier_fault
from policies.retrieval import Retrieval
from sidecar.enforce import Enforcer, allows
from sidecar.http.attribution import Attribution
from sidecar.identity import AgentIdentity
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.protocols.messages import SourceRef
from sidecar.recorder import RecordedDecision
from sidecar.spool.errors import SpoolError

log = logging.getLogger(__name__)

UNREADABLE = "unreadable_request"

_LONGEST_REASON = 512


class Refused(Exception):
    """A request that may not happen for a reason that is none of the ten checks. Nothing is
    recorded yet: `Authorizer.refuse` does that. `place` is what it asks for, as far as that is
    known."""

    def __init__(
        self,
        status: int,
        policy_name: str,
        reason: str,
        who: Attribution,
        *,
        place: SourceRef | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.policy_name = policy_name
        self.reason = reason
        self.who = who
        self.place = place
        self.close = close


class Denied(Exception):
    """A request that may not happen; its record is durable, and the agent is to be told with
    `status`."""

    def __init__(self, status: int, pending: RecordedDecision, *, close: bool = False) -> None:
        super().__init__()
        self.status = status
        self.pending = pending
        self.decision = pending.decision
        self.event_id = pending.event_id
        self.close = close


class Authorizer:
    """Decides for one agent about one data source: `kind` is the audit trail's `source_type`,
    `whole` what is named where a request can't be told more closely. Where it `reports`, what would
    be denied is recorded as that and goes on (the source's `mode`)."""

    def __init__(
        self,
        kind: str,
        whole: SourceRef,
        agent: AgentIdentity,
        enforcer: Enforcer,
        *,
        reports: bool = False,
    ) -> None:
        self.reports = reports
        self._kind = kind
        self._whole = whole
        self._agent = agent
        self._enforcer = enforcer

    async def allow(self, places: Iterable[SourceRef], who: Attribution) -> list[RecordedDecision]:
        """One pending decision for each place, every one of which passes; else raises `Denied`, or
        `Refused` for a name that the audit trail can't hold."""
        key = self._agent.key()
        asked = []
        for place in places:
            fault = identifier_fault(place.source_id)
            if fault is not None:
                raise Refused(400, UNREADABLE, f"the source's name {fault}", who)
            asked.append(self._retrieval(place, who))
        if not asked:
            return []
        pendings = await self._enforcer.submit_together(asked, key, report_mode=self.reports)
        for pending in pendings:
            if not pending.passes:
                await pending.durable
                raise Denied(403, pending)
        return pendings

    async def still(self, places: Iterable[SourceRef], who: Attribution) -> None:
        """Raises `Denied`, recorded, where one of them may not be any more."""
        permits = await self.permitting(who)
        denied = [place for place in places if not permits(place)]
        if denied:
            await self.allow(denied, who)

    def at_once(self, place: SourceRef, who: Attribution) -> RecordedDecision | None:
        """The decision for one place where it can be made without waiting for anybody; None where
        it can't, and nothing is recorded."""
        if identifier_fault(place.source_id) is not None:
            return None
        retrieval, key = self._retrieval(place, who), self._agent.key()
        try:
            if self._enforcer.must_claim(retrieval, key):
                return None
            return self._enforcer.decide(retrieval, key, report_mode=self.reports)
        except (MissingDocument, SpoolError):
            return None  # the long way comes to the same, or brings what is lacking

    async def permitting(self, who: Attribution) -> "Permission":
        """Whether a name may be seen in a list. Not recorded: nothing is read."""
        await self._enforcer.prepare(self._retrieval(self._whole, who), self._agent.key())
        return self.permits_at_once(who)

    def permits_at_once(self, who: Attribution) -> "Permission":
        """As `permitting`, by the documents that are here."""
        outlook = partial(self._outlook, who)
        return Permission(partial(self._retrieval, who=who), outlook, everything=self._everything)

    def _everything(self) -> bool:
        return self._enforcer.may_report(self.reports)

    def _outlook(self, who: Attribution) -> Facts | None:
        return self._enforcer.outlook(self._retrieval(self._whole, who), self._agent.key())

    async def refuse(self, refused: Refused) -> Denied:
        """Records it; what the agent is to be told, unless it goes on."""
        place = refused.place
        # One record that the log can't hold would hold up all that come after it: what the agent
        # wrote is named only as far as it fits.
        if place is None or identifier_fault(place.source_id) is not None:
            place = self._whole
        retrieval = self._retrieval(place, refused.who)
        # INVARIANT: what can be read in two ways goes on to nobody, whatever the mode.
        reports = self.reports and refused.policy_name != UNREADABLE
        reason = refused.reason[:_LONGEST_REASON].encode(errors="replace").decode()
        pending = await self._enforcer.refuse(
            retrieval, refused.policy_name, reason, report_mode=reports
        )
        return Denied(refused.status, pending, close=refused.close)

    async def record(self, refused: Refused) -> None:
        """As `refuse`, where nobody is left to be told."""
        try:
            await self.refuse(refused)
        except SluiceError as error:
            log.warning("a denial by `%s` can't be recorded: %s", refused.policy_name, error)

    def _retrieval(self, place: SourceRef, who: Attribution) -> Retrieval:
        return Retrieval(
            self._agent.role,
            who.user,
            place.source_id,
            who.level(place.sensitivity),
            who.session,
            who.task,
            self._agent.id,
            None,
            self._kind,
        )


class Permission:
    """Whether one caller may see a name, by place.

    On the loop it looks at the policy set anew for each name: a stream may last for hours, and the
    key be revoked meanwhile. In the worker thread, which may not touch the policy set, it goes by
    what `refresh` found on the loop right before the work began; without that it permits nothing.
    """

    __slots__ = ("_all", "_everything", "_facts", "_loop", "_outlook", "_retrieval")

    def __init__(
        self,
        retrieval: Callable[[SourceRef], Retrieval],
        outlook: Callable[[], Facts | None],
        *,
        everything: Callable[[], bool],
    ) -> None:
        self._retrieval = retrieval
        self._outlook = outlook
        self._everything = everything
        self._all = everything()
        self._facts: Facts | None = None
        self._loop = get_ident()

    def refresh(self) -> None:
        """Looks at the policy set. On the loop only."""
        self._all = self._everything()
        self._facts = self._outlook()

    def __call__(self, place: SourceRef) -> bool:
        if get_ident() == self._loop:
            self.refresh()
        if self._all:
            return True
        retrieval = self._retrieval(place)
        if identifier_fault(retrieval.source_id) is not None:
            return False
        return self._facts is not None and allows(retrieval, self._facts)
