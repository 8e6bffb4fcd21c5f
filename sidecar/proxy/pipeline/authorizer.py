"""Asks whether a request may happen, and makes sure that every refusal is recorded.

A request concerns a set of sources, and every one must be allowed (`protocols/RULES.md`, All
sources). A request that can't be read, resolved or classified is denied under a policy name of its
own. Knows the agent, the source's settings and the enforcer. Knows nothing of bytes or connections.
"""

import logging
from collections.abc import Iterable
from threading import get_ident

from policies.allowed_below import allows_below
from policies.checks.finding import Facts
from policies.evaluate import admitted
from policies.ground.canonical import identifier_fault
from policies.ground.errors import SluiceError
from policies.levels import Levels
from policies.retrieval import Retrieval
from sidecar.decision_preview import allows
from sidecar.enforce import PROXY, Enforcer, EntryPoint
from sidecar.http.attribution import Attribution
from sidecar.live_keys import AgentIdentity
from sidecar.platform.eager import Watch, unwatched
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.pipeline.statement_reads import StatementReads
from sidecar.recorder import RecordedDecision

log = logging.getLogger(__name__)

UNREADABLE = "unreadable_request"
WRITE_DENIED = "write_denied"

_LONGEST_REASON = 512


class Refused(Exception):
    """Raised for a request that is refused for a reason other than the ten checks. The refusal
    isn't recorded yet: `Authorizer.refuse` records it. `source` is the source that the request asks
    for, None if the request wasn't read that far; with `close`, the connection ends after the
    response."""

    def __init__(
        self,
        status: int,
        policy_name: str,
        reason: str,
        who: Attribution,
        *,
        source: SourceRef | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.policy_name = policy_name
        self.reason = reason
        self.who = who
        self.source = source
        self.close = close


class Denied(Exception):
    """Raised for a request that is denied, after the record of the denial is on disk. The agent
    gets the HTTP `status`."""

    def __init__(self, status: int, recorded: RecordedDecision, *, close: bool = False) -> None:
        super().__init__(recorded.decision.reason)
        self.status = status
        self.recorded = recorded
        self.decision = recorded.decision
        self.event_id = recorded.event_id
        self.close = close


class Authorizer:
    """Decides about one agent's requests to one data source. `kind` is the audit trail's
    `source_type`. `whole` stands for the whole data source, for requests that can't be resolved
    more precisely. With `reports` (the source's `mode: report`), a request that would be denied is
    recorded as denied and still goes on."""

    def __init__(
        self,
        kind: str,
        whole: SourceRef,
        agent: AgentIdentity,
        enforcer: Enforcer,
        *,
        reports: bool = False,
        entry_point_name: str = PROXY,
    ) -> None:
        self.reports = reports
        self.tracer = enforcer.tracer
        self._kind = kind
        self.whole = whole
        self._agent = agent
        self._enforcer = enforcer
        self._preview = enforcer.preview
        self._entry_point_name = entry_point_name

    async def allow(
        self,
        sources: Iterable[SourceRef],
        who: Attribution,
        watch: Watch = unwatched,
        *,
        urgent: bool = False,
        statement: StatementReads | None = None,
    ) -> list[RecordedDecision]:
        """Decide about each of `sources`, and return the decisions if all of them let the request
        pass. Otherwise raises `Denied`; or `Refused`, for a source name that the audit trail can't
        hold. `watch` tells when the client leaves. An `urgent` decision doesn't wait until other
        calls' texts are masked. `statement` is the one that reads the sources, if any does; the
        records hold its text and its mark."""
        key = self._agent.key()
        retrievals = []
        for source in sources:
            # Before anything is decided: a record with a name that the log can't hold would block
            # all records after it.
            fault = identifier_fault(source.source_id)
            if fault is not None:
                raise Refused(400, UNREADABLE, f"the source's name {fault}", who)
            retrievals.append(self.retrieval(source, who, statement))
        if not retrievals:
            return []
        entry_point = EntryPoint(self._entry_point_name, watch, self.reports, urgent)
        decisions = await self._enforcer.decide(retrievals, key, entry_point)
        for recorded in decisions:
            if recorded.decision.decision != "ALLOW" and not recorded.report_only:
                # No agent sees a denial that the log may not have.
                await recorded.durable
                raise Denied(403, recorded)
        return decisions

    async def reauthorize(
        self,
        sources: Iterable[SourceRef],
        who: Attribution,
        *,
        statement: StatementReads | None = None,
    ) -> None:
        """Raise `Denied`, recorded, if one of the sources is no longer allowed. Without sources,
        raise it if the caller may no longer ask for anything. `statement` is as in `allow`."""
        permits, named = await self.permission(who), tuple(sources)
        denied = [source for source in named if not permits(source)]
        if not named and not permits.admits():
            denied = [self.whole]
        # Only a denial is recorded: this runs every second for each tunnel and lasting response.
        if denied:
            # Until then the allowed traffic goes on: an agent must not delay this by texts that
            # take long to mask.
            await self.allow(denied, who, urgent=True, statement=statement)

    async def permission(self, who: Attribution) -> "Permission":
        """Return a `Permission`, which tells for any source whether this caller may see it in a
        list. It isn't recorded, because nothing is read."""
        await self._preview.prepare(self.retrieval(self.whole, who), self._agent.key())
        return Permission(self, who)

    def forwards_denied(self) -> bool:
        """Return whether even a denied request would be forwarded now: the source is in mode
        `report`, and the tenant isn't frozen."""
        return self._preview.may_report(self.reports)

    def current_facts(self, who: Attribution) -> Facts | None:
        """Return the facts from which this caller's requests would be decided now; None if nothing
        is permitted."""
        return self._preview.preview_facts(self.retrieval(self.whole, who), self._agent.key())

    async def refuse(
        self,
        refused: Refused,
        method: str = "",
        target: str = "",
        *,
        statement: StatementReads | None = None,
    ) -> Denied:
        """Record the refusal, and return the denial. The agent gets it unless the request goes on
        all the same (mode `report`). `target` is the request's target, empty if there is none.
        `statement` is as in `allow`."""
        source = refused.source
        # A record that the log can't hold would block all records after it, so a name that the
        # agent chose is used only if it fits.
        if source is None or identifier_fault(source.source_id) is not None:
            source = self.whole
        retrieval = self.retrieval(source, refused.who, statement)
        # INVARIANT: a request that could be read in two ways is never forwarded, in any mode.
        reports = self.reports and refused.policy_name != UNREADABLE
        # Cut, because it may quote the request. Bytes that are not text become `?`: JSON can't hold
        # them.
        reason = refused.reason[:_LONGEST_REASON].encode(errors="replace").decode()
        entry_point = EntryPoint(self._entry_point_name, report_mode=reports)
        recorded = await self._enforcer.deny(retrieval, refused.policy_name, reason, entry_point)
        await recorded.durable
        if target and refused.policy_name == UNREADABLE:
            await self._enforcer.unreadable.note(method, target, recorded.event_id)
        return Denied(refused.status, recorded, close=refused.close)

    async def record(self, refused: Refused, *, statement: StatementReads | None = None) -> None:
        """Record a refusal as `refuse` does, for a connection on which no answer can be sent. If
        that fails, only the log says so."""
        try:
            await self.refuse(refused, statement=statement)
        except SluiceError as error:
            log.warning("can't record a denial by `%s`: %s", refused.policy_name, error)

    def retrieval(
        self, source: SourceRef, who: Attribution, statement: StatementReads | None = None
    ) -> Retrieval:
        made = Retrieval(
            self._agent.role,
            who.user,
            source.source_id,
            who.level(source.sensitivity),
            who.session,
            who.task,
            self._agent.id,
            None,
            self._kind,
            None,
            Levels(who.sensitivity, source.sensitivity),
        )
        if statement is None:
            return made
        return made._replace(query=statement.text, statement=statement.mark_of(source))


class Permission:
    """Answers whether one caller may see a source: call it with the source.

    On the event loop it consults the policy set anew for each source: a stream may last for hours,
    and the key may be revoked before it ends. In the worker thread, which must not touch the policy
    set, it uses the facts that `refresh` gathered on the loop right before the work began; without
    facts it permits nothing.
    """

    __slots__ = ("_all", "_authorizer", "_facts", "_loop", "_who")

    def __init__(self, authorizer: Authorizer, who: Attribution) -> None:
        self._authorizer = authorizer
        self._who = who
        self._all = authorizer.forwards_denied()
        self._facts: Facts | None = None
        self._loop = get_ident()

    def refresh(self) -> None:
        """Gather the facts from the policy set, for later calls in the worker thread. Call it only
        on the event loop."""
        self._all = self._authorizer.forwards_denied()
        self._facts = self._authorizer.current_facts(self._who)

    def admits(self) -> bool:
        """Return whether the caller may ask for anything at all. Call it only on the event loop."""
        self.refresh()
        if self._all:
            return True
        retrieval = self._authorizer.retrieval(self._authorizer.whole, self._who)
        return self._facts is not None and admitted(retrieval, self._facts)

    def admits_below(self, start: SourceRef, named: Iterable[SourceRef]) -> bool:
        """Return whether the caller may see all sources in `named`, and every source whose id
        begins with the id of `start`. Call it only on the event loop."""
        self.refresh()
        retrieval = self._authorizer.retrieval(start, self._who)
        allowed = self._facts is not None and allows_below(retrieval, self._facts)
        return self._all or (allowed and all(map(self, named)))

    def __call__(self, source: SourceRef) -> bool:
        if get_ident() == self._loop:
            self.refresh()
        if self._all:
            return True
        retrieval = self._authorizer.retrieval(source, self._who)
        # A source with such a name can never be read (`Authorizer.allow`), so no list shows it.
        if identifier_fault(retrieval.source_id) is not None:
            return False
        return self._facts is not None and allows(retrieval, self._facts)
