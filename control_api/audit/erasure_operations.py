"""Erases personal values of audit events (`policies/trail/FORMAT.md`, Erasure), places the legal
holds that keep them, and defines the responses about both.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import Field
from sqlalchemy import Row

from control_api.audit.bundle import Audit
from control_api.auth import Caller
from control_api.edge.answers import Page, page_of, time_or_none
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    KEPT_REASON,
    Flag,
    Identifier,
    ListRequest,
    Reason,
    RequestModel,
)
from control_api.log.erasure import Erasure, ErasureRequest
from control_api.store.queries import holds, redactions
from control_api.store.queries.holds import StoredHold
from control_api.store.queries.redactions import ErasureTarget
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, NotFound, invalid
from policies.ground.ids import prefixed
from policies.trail.change import Hold, hold_placed, hold_released

HeldObject = Literal["session", "agent", "user"]
_NOW = "2026-01-31T12:00:00.000000Z"
_HASH = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"


@dataclass(frozen=True, slots=True)
class Redacted:
    """The result of one erasure: the number of entries and of sessions whose values were erased,
    and the `redact` entry that records it, the last if there are several."""

    redacted: Annotated[int, says("How many entries lost their personal values.")]
    sessions: Annotated[int, says("How many sessions lost their user.")]
    seq: int | None
    more: Annotated[bool, says("Whether more is left: send the same request again.")]

    example: ClassVar[dict[str, Any]] = {"redacted": 17, "sessions": 2, "seq": 1020, "more": False}


@dataclass(frozen=True, slots=True)
class RedactionResponse:
    """A `redact` entry, which records an erasure. `events` are the entries whose openings were
    erased, as ranges `[first, last]` of their `seq`, both included."""

    seq: int
    hash: str
    timestamp: str
    by: str
    reason: Annotated[str, KEPT_REASON]
    events: Annotated[
        list[list[int]], says("The ranges `[first, last]` of the entries whose values were erased.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "seq": 1020,
        "hash": _HASH,
        "timestamp": _NOW,
        "by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "reason": "erasure request 2026-114",
        "events": [[17, 17], [40, 52]],
    }


HOLD_REASON = says("Why it is held. The log keeps it forever: nothing personal.")


@dataclass(frozen=True, slots=True)
class HoldResponse:
    """A legal hold. `seq` is the entry that placed it; `object_id` is empty once a user was erased
    after the release."""

    hold_id: str
    object_type: HeldObject
    object_id: str
    reason: Annotated[str, HOLD_REASON]
    placed_by: Annotated[str, says("The id of the key that placed the hold.")]
    placed_at: Annotated[str, says("When the hold was placed.")]
    seq: int
    released_by: Annotated[
        str | None, says("The id of the key that released the hold. `null` while it is active.")
    ]
    released_at: Annotated[
        str | None, says("When the hold was released. `null` while it is active.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "hold_id": "hld_3nB7xGvQ2mT5kWc8LpR0aZ",
        "object_type": "session",
        "object_id": "s-77",
        "reason": "litigation 2026-9",
        "placed_by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "placed_at": _NOW,
        "seq": 1019,
        "released_by": None,
        "released_at": None,
    }


MAX_HOLDS = 1000
"""The most active legal holds of one tenant. They are limited because a purge or an erasure
compares each with what it removes."""


class NewHold(RequestModel):
    """The object to hold, and the reason. The log keeps `reason` forever: it must hold nothing
    personal."""

    example: ClassVar[dict[str, Any]] = {
        "object_type": "session",
        "object_id": "s-77",
        "reason": "litigation 2026-9",
    }

    object_type: HeldObject
    object_id: Identifier
    reason: Annotated[Reason, HOLD_REASON]


class HoldsRequest(ListRequest):
    """With `active`, only holds that are not released; without it, all."""

    active: Flag = False


class Release(RequestModel):
    """The reason why a hold ends. The log keeps `reason` forever: it must hold nothing personal."""

    example: ClassVar[dict[str, Any]] = {"reason": "litigation 2026-9 is settled"}

    hold_id: Identifier
    reason: Annotated[
        Reason, says("Why the hold ends. The log keeps it forever: nothing personal.")
    ]


async def place_hold(audit: Audit, caller: Caller, request: NewHold) -> HoldResponse:
    """Keep a session's, an agent's or a user's entries from retention and erasure until released.

    Retention removes only the oldest entries, so it stops before the first that is held. A user's
    id is matched as recorded, and as masking would record it.
    """

    async def work(tx: Transaction) -> StoredHold:
        # Under the tenant's lock: a purge or an erasure either sees the hold, or has committed.
        await tx.lock()
        if await holds.count_active(tx.connection, tx.tenant_id) >= MAX_HOLDS:
            raise Conflict(
                f"the tenant already has {MAX_HOLDS} active holds, the most allowed: release one"
            )
        wanted = (request.object_type, request.object_id, request.reason)
        hold = Hold(prefixed("hld_", audit.entropy(16)), *wanted, caller.by, tx.now)
        record = hold_placed(hold, record_id=audit.changes.new_id(), salt=audit.entropy(32))
        stored = StoredHold(*hold[:6], (await tx.append(record)).seq)
        await holds.add(tx.connection, tx.tenant_id, stored)
        return stored

    return _hold(await audit.store.write(caller.tenant_id, work))


async def list_holds(audit: Audit, caller: Caller, request: HoldsRequest) -> Page[HoldResponse]:
    """List legal holds, newest first."""
    async with audit.store.reading(caller.tenant_id) as connection:
        rows = await holds.page(
            connection,
            caller.tenant_id,
            is_active=True if request.active else None,
            after=request.after(int, str),
            limit=request.limit + 1,
        )
    return page_of(rows, request.limit, lambda hold: (hold.placed_at, hold.hold_id), _hold)


async def release_hold(audit: Audit, caller: Caller, request: Release) -> HoldResponse:
    """Release a legal hold. Released already, it stays as it is."""

    async def work(tx: Transaction) -> StoredHold:
        await tx.lock()
        hold = await holds.find(tx.connection, tx.tenant_id, request.hold_id)
        if hold is None:
            raise NotFound(f"no such hold: `{request.hold_id}`")
        if hold.released_at is not None:
            return hold
        await tx.append(
            hold_released(
                hold.recorded(), caller.by, tx.now, request.reason, record_id=audit.changes.new_id()
            )
        )
        await holds.release(tx.connection, tx.tenant_id, hold.hold_id, caller.by, tx.now)
        return replace(hold, released_by=caller.by, released_at=tx.now)

    return _hold(await audit.store.write(caller.tenant_id, work))


def _hold(hold: StoredHold) -> HoldResponse:
    fields: dict[str, Any] = {name: getattr(hold, name) for name in HoldResponse.__slots__}
    times = {"placed_at": rfc3339(hold.placed_at), "released_at": time_or_none(hold.released_at)}
    return HoldResponse(**fields | times)


async def list_redactions(
    audit: Audit, caller: Caller, request: ListRequest
) -> Page[RedactionResponse]:
    """List the erasures that the log records, newest first."""
    async with audit.store.reading(caller.tenant_id) as connection:
        rows = await redactions.page(
            connection, caller.tenant_id, before=request.seq(), after=None, limit=request.limit + 1
        )
    return page_of(rows, request.limit, lambda row: (row.seq,), _redaction)


def _redaction(row: Row[Any]) -> RedactionResponse:
    entry = orjson.loads(row.entry)
    pub = entry["pub"]
    return RedactionResponse(
        row.seq, row.hash.hex(), entry["ts"], pub["by"], pub["reason"], pub["events"]
    )


MAX_IDS = 1000


EventIds = Annotated[list[Identifier], Field(min_length=1, max_length=MAX_IDS)]


class Redaction(RequestModel):
    """Selects the values to erase: exactly one of the three. The log keeps `reason`, and the id of
    the key that asked, forever: neither may hold anything personal."""

    example: ClassVar[dict[str, Any]] = {"user_id": "u-1001", "reason": "erasure request 2026-114"}

    event_ids: Annotated[EventIds | None, says("The events whose personal values to erase.")] = None
    user_id: Annotated[
        Identifier | None, says("The user whose values to erase, exactly as recorded.")
    ] = None
    session_id: Identifier | None = None
    reason: Annotated[Reason, KEPT_REASON]


async def redact_events(audit: Audit, caller: Caller, request: Redaction) -> Redacted:
    """Erase what events hold of a person: `user_id` and `query`, and the `detail` of their lineage.

    Every hash still verifies. A session loses its `user_id` with its last event's. A legal hold on
    any of it refuses all of it. Repeatable: what is gone already counts 0. While `more` is true,
    send the same request again. The user's id is matched exactly as recorded, and is not recorded
    anew; `reason` is, so it must hold nothing personal.
    """
    erasure = Erasure(
        audit.store,
        ErasureRequest(caller.tenant_id, _target(request), caller.by, request.reason),
        audit.changes.new_id,
    )
    try:
        done = await erasure.run()
    finally:
        # Also after a failure half way: what was erased has to go from the files.
        audit.folding.start()
    return Redacted(done.entries, done.sessions, done.seq, done.more)


def _target(request: Redaction) -> ErasureTarget:
    match request.event_ids, request.user_id, request.session_id:
        case list(event_ids), None, None:
            return ErasureTarget(None, "", tuple(event_ids))
        case None, str(user_id), None:
            return ErasureTarget("user_id", user_id)
        case None, None, str(session_id):
            return ErasureTarget("session_id", session_id)
    raise invalid(["event_ids, user_id, session_id: exactly one is required"])
