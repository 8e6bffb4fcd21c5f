"""Asks whether a request may happen, and makes every refusal a recorded one.

A request concerns a set of sources, and every one must be allowed (data-sources.md R4). What can't
be read, told or classed is denied under a name of its own. Knows the agent, the source's settings
and the enforcer. Knows nothing of bytes or connections.
"""

from collections.abc import Iterable

from policies.ground.body import identifier_fault
from policies.retrieval import Retrieval
from sidecar.enforce import Enforcer, Pending
from sidecar.identity import AgentIdentity
from sidecar.protocols.protocol import Place
from sidecar.proxy.attribution import Attribution
from sidecar.proxy.reply import Reply

UNREADABLE = "unreadable_request"


class Refused(Exception):
    """A request that may not happen for a reason that is none of the ten checks. Nothing is
    recorded yet: `Judge.refuse` does that. `place` is what it asks for, as far as that is known."""

    def __init__(
        self,
        status: int,
        policy_name: str,
        reason: str,
        who: Attribution,
        *,
        place: Place | None = None,
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
    """A request that may not happen; its record is durable. `reply` says so to the agent."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class Judge:
    """Decides for one agent about one data source: `kind` is the audit trail's `source_type`,
    `whole` what is named where a request can't be told more closely."""

    def __init__(self, kind: str, whole: Place, agent: AgentIdentity, enforcer: Enforcer) -> None:
        self._kind = kind
        self._whole = whole
        self._agent = agent
        self._enforcer = enforcer

    async def allow(self, places: Iterable[Place], who: Attribution) -> list[Pending]:
        """One pending decision for each place, every one an ALLOW; else raises `Denied`, or
        `Refused` for a name that the audit trail can't hold."""
        key = self._agent.key()
        asked = []
        for place in places:
            fault = identifier_fault(place.source_id)
            if fault is not None:
                raise Refused(400, UNREADABLE, f"the source's name {fault}", who)
            asked.append(self._retrieval(place, who))
        # Among several, one that is denied is recorded alone: an ALLOW beside it would tell of a
        # retrieval that never took place.
        if len(asked) > 1:
            denied = [each for each in asked if not self._enforcer.permits(each, key)]
            asked = denied[:1] or asked
        allowed: list[Pending] = []
        for retrieval in asked:
            pending = await self._enforcer.submit(retrieval, key)
            if pending.decision.decision != "ALLOW":
                for each in (*allowed, pending):
                    await each.durable
                raise Denied(Reply.of_denial(403, pending.decision, pending.event_id))
            allowed.append(pending)
        return allowed

    def permits(self, place: Place, who: Attribution) -> bool:
        """Whether a name may be seen in a list. Not recorded: nothing is read."""
        retrieval = self._retrieval(place, who)
        if identifier_fault(retrieval.source_id) is not None:
            return False
        return self._enforcer.permits(retrieval, self._agent.key())

    async def refuse(self, refused: Refused) -> Reply:
        """Records it, and says so."""
        retrieval = self._retrieval(refused.place or self._whole, refused.who)
        pending = await self._enforcer.refuse(retrieval, refused.policy_name, refused.reason)
        return Reply.of_denial(
            refused.status, pending.decision, pending.event_id, close=refused.close
        )

    def _retrieval(self, place: Place, who: Attribution) -> Retrieval:
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
