"""Judges the records that a sidecar's key delivers, one by one, by what the key may say, and lists
those that were refused.

    record ─▶ not a record, another spool, an id of another form  refused
           ─▶ ALLOW: an agent of the key, in a role of the agent's  else refused
           ─▶ DENY:  any agent, since impostors are denied too      marked, counted for no agent
           ─▶ lineage: of an event of the key's, shipped before     else refused
           ─▶ its time, against its arrival                         marked

A refused record becomes an entry too, at its place in the spool (`policies.trail.core`), so that
the valid records behind it are not held up.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import orjson
from sqlalchemy import select, text

from control_api.store.queries.purges import first_kept
from control_api.store.schema.log import log_entries
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.definitions.model import Key
from policies.ground.errors import Invalid
from policies.trail.core import AGENT_FOREIGN, TIME_DOUBTFUL
from policies.trail.spool_chain import Place, Spooled, read_place, refused

SLACK = 120_000_000
"""Microseconds by which a sidecar may learn of a change later than the control API.
`trail/recompute` allows as much."""
MAX_SCANNED = 20_000
_ROLE_ROWS = 500
_MARK = b'"what":"agent.'


async def former_roles(
    store: Store, tenant_id: str, agent_ids: Collection[str], since: int
) -> dict[str, set[str]]:
    """Return the roles that each of these agents had at some time since `since` (microseconds),
    according to the `change` entries. Only the newest `MAX_SCANNED` changes of the tenant are
    read."""
    found: dict[str, set[str]] = {agent_id: set() for agent_id in agent_ids}
    query = select(log_entries.c.seq, log_entries.c.entry).where(
        of_tenant(log_entries, tenant_id),
        # In the words of the index's condition: otherwise no database uses it.
        text("kind = 'change' AND kind NOT IN ('decision', 'lineage')"),
        log_entries.c.seq >= first_kept(tenant_id),
        log_entries.c.ts >= since - SLACK,
    )
    query = query.order_by(log_entries.c.seq.desc()).limit(_ROLE_ROWS)
    async with store.reading(tenant_id) as connection:
        before: int | None = None
        for _ in range(MAX_SCANNED // _ROLE_ROWS):
            page = query if before is None else query.where(log_entries.c.seq < before)
            rows = (await connection.execute(page)).all()
            for row in rows:
                if _MARK in row.entry:
                    _note(orjson.loads(row.entry)["pub"], found)
            if len(rows) < _ROLE_ROWS:
                break
            before = rows[-1].seq
    return found


def _note(pub: dict[str, object], found: dict[str, set[str]]) -> None:
    roles = found.get(str(pub["target"]))
    if roles is None:
        return
    # Each holds the members that differ, or all if the agent was created.
    for state in (pub.get("before"), pub.get("after")):
        if isinstance(state, dict):
            roles.update(map(str, state.get("permitted_roles", ())))


AHEAD = 60_000_000
"""Microseconds by which a record's time may be later than its arrival."""
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


class RecordRefusal(StrEnum):
    """The reasons for which a record is refused. The log stores these values, so they must not
    change."""

    not_a_record = "not_a_record"
    foreign_spool = "foreign_spool"
    event_id = "event_id"
    duplicate_id = "duplicate_id"
    foreign_agent = "foreign_agent"
    foreign_role = "foreign_role"
    foreign_event = "foreign_event"
    unknown_event = "unknown_event"


Roles = Mapping[str, Collection[str]]
"""The roles in which agents may act, by agent id."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that the log holds: the sidecar that decided it (None for the control API), and the
    agent that it was decided for."""

    sidecar_id: str | None
    agent_id: str | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """The queries that a judge needs. `roles` returns the roles that agents have now, or had at
    some time since the given one (microseconds); `events` returns those of the events with these
    ids that the log holds."""

    roles: Callable[[Mapping[str, Collection[str]], int], Awaitable[Roles]]
    events: Callable[[Collection[str]], Awaitable[Mapping[str, Event]]]


class _Known(NamedTuple):
    """The data with which the records of a batch are compared. `seen` has the ids of its records so
    far, `decided` the ids of its decisions that were not refused."""

    roles: Roles
    events: Mapping[str, Event]
    seen: set[str]
    decided: set[str]


@dataclass(slots=True)
class Judge:
    """Judges one batch of the spool `source` / `instance`. Times are in microseconds; `new_id`
    makes the ids of entries. `refusals` has the reason for each refused record, by its number in
    the spool."""

    key: Key
    source: str
    instance: str
    now: int
    max_age: int
    new_id: Callable[[], str]
    lookup: Lookup
    refusals: dict[int, RecordRefusal] = field(default_factory=dict)
    doubtful: int = 0
    """The number of records whose time is too far from their arrival."""

    def unreadable(self, payload: object, error: Invalid) -> Spooled:
        """Return the `rejected_record` entry for a payload that is not a record. Raises `error` if
        the payload does not even state its place in a spool."""
        found = read_place(payload)
        if found is None:
            raise error
        return self._refused(*found, RecordRefusal.not_a_record)

    def refuse(self, record: Spooled, reason: RecordRefusal) -> Spooled:
        """Return the `rejected_record` entry for a refused record."""
        core = record.core
        return self._refused(core, Place(record.n, record.prev, core["src"]["t"]), reason)

    async def judge(self, records: list[Spooled]) -> list[Spooled]:
        known = _Known(await self._roles(records), await self._events(records), set(), set())
        judged = []
        for record in records:
            reason = None
            if record.n not in self.refusals:
                columns = record.columns
                reason = self._fault(record, known)
                known.seen.add(columns.eid)
                if reason is None and columns.kind == "decision":
                    known.decided.add(columns.eid)
            marked = self._marked(record) if reason is None else self.refuse(record, reason)
            judged.append(marked)
        return judged

    def refuse_taken(self, records: list[Spooled], taken: Collection[str]) -> list[Spooled]:
        """Return judged records with some more of them refused: those whose ids are `taken`,
        because the log turned out to hold these already, and the lineage of those."""
        judged = []
        for record in records:
            columns = record.columns
            if columns.eid in taken:
                judged.append(self.refuse(record, RecordRefusal.duplicate_id))
            elif columns.ref in taken:
                judged.append(self.refuse(record, RecordRefusal.foreign_event))
            else:
                judged.append(record)
        return judged

    def _fault(self, record: Spooled, known: _Known) -> RecordRefusal | None:
        columns = record.columns
        if record.source != self.source or record.instance != self.instance:
            return RecordRefusal.foreign_spool
        if _UUID7.match(columns.eid) is None:
            return RecordRefusal.event_id
        if columns.eid in known.seen:
            return RecordRefusal.duplicate_id
        if columns.decision == "ALLOW":
            if not self.key.may_speak_for_agent(columns.agent_id):
                return RecordRefusal.foreign_agent
            if (
                columns.agent_id is not None
                and columns.agent_role not in known.roles[columns.agent_id]
            ):
                return RecordRefusal.foreign_role
        return None if columns.ref is None else self._event_fault(columns.ref, known)

    def _event_fault(self, event_id: str, known: _Known) -> RecordRefusal | None:
        # INVARIANT: what the log has comes first. A record of the batch with the same id will be
        # refused.
        event = known.events.get(event_id)
        if event is None:
            # A sidecar spools a decision before what follows from it. Lineage ahead of its event
            # would be shown with it, though another sidecar decided it.
            return None if event_id in known.decided else RecordRefusal.unknown_event
        if event.sidecar_id == self.source:
            return None
        ours = event.sidecar_id is not None and self.key.may_speak_for_agent(event.agent_id)
        return None if ours else RecordRefusal.foreign_event

    def _marked(self, record: Spooled) -> Spooled:
        if record.n in self.refusals:
            return record
        columns = record.columns
        marks: tuple[str, ...] = ()
        if columns.agent_id is not None and not self.key.may_speak_for_agent(columns.agent_id):
            marks = (AGENT_FOREIGN,)
        if not self.now - self.max_age <= columns.ts <= self.now + AHEAD:
            marks = (*marks, TIME_DOUBTFUL)
            self.doubtful += 1
        return record._replace(marks=marks) if marks else record

    def _refused(self, core: dict[str, Any], place: Place, reason: RecordRefusal) -> Spooled:
        self.refusals[place.n] = reason
        spool = (self.source, self.instance)
        return refused(core, place, spool, str(reason), self.key.key_id, self.new_id())

    async def _roles(self, records: list[Spooled]) -> Roles:
        acted: dict[str, set[str]] = {}
        since = self.now
        for record in records:
            columns = record.columns
            if columns.decision == "ALLOW" and columns.agent_id is not None:
                assert columns.agent_role is not None
                acted.setdefault(columns.agent_id, set()).add(columns.agent_role)
                since = min(since, columns.ts)
        return await self.lookup.roles(acted, max(since, self.now - self.max_age)) if acted else {}

    async def _events(self, records: list[Spooled]) -> Mapping[str, Event]:
        cited = {record.columns.ref for record in records if record.columns.ref is not None}
        return await self.lookup.events(cited) if cited else {}


MAX_BYTES = 2 * 1024 * 1024
"""The size in bytes of the entries at which a page ends."""
_REJECTED_ROWS = 50


class RejectedPage(NamedTuple):
    """A page of `rejected_record` entries with their leaf hashes. Pass `next` as `before_seq` for
    the following page; it is None on the last page."""

    entries: list[tuple[dict[str, Any], bytes]]
    next: int | None


async def rejected_records(
    store: Store, tenant_id: str, limit: int, before_seq: int | None = None
) -> RejectedPage:
    """Return a page of the records that were refused, newest first, from those with a `seq` below
    `before_seq`. They are found by the index of rare kinds. Everything shown comes from the entry's
    bytes."""
    query = select(log_entries.c.seq, log_entries.c.entry, log_entries.c.hash).where(
        of_tenant(log_entries, tenant_id),
        # In the words of the index's condition: otherwise no database uses it.
        text("kind = 'rejected_record' AND kind NOT IN ('decision', 'lineage')"),
        log_entries.c.seq >= first_kept(tenant_id),
    )
    query = query.order_by(log_entries.c.seq.desc()).limit(_REJECTED_ROWS)
    page: list[tuple[dict[str, Any], bytes]] = []
    room, position = MAX_BYTES, before_seq
    async with store.reading(tenant_id) as connection:
        while True:
            part = query if position is None else query.where(log_entries.c.seq < position)
            rows = (await connection.execute(part)).all()
            for row in rows:
                if len(page) == limit or room < 0:
                    return RejectedPage(page, position)
                page.append((orjson.loads(row.entry), row.hash))
                room, position = room - len(row.entry), row.seq
            if len(rows) < _REJECTED_ROWS:
                return RejectedPage(page, None)
