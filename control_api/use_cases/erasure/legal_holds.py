"""Places, lists and releases legal holds, which keep entries from retention and erasure."""

from dataclasses import replace
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Flag, Identifier, ListRequest, Reason, RequestModel
from control_api.responses.erasure import HeldObject, HoldShown
from control_api.responses.paging import Page, page_of
from control_api.responses.times import time_or_none
from control_api.store.queries import holds
from control_api.store.queries.holds import StoredHold
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, NotFound
from policies.ground.ids import prefixed
from policies.trail.erasure.hold import Hold, hold_placed, hold_released

MAX_HOLDS = 1000
"""The most active holds of one tenant: each is compared with what a purge or an erasure removes."""


class NewHold(RequestModel):
    """What to hold, and why. The log keeps `reason` forever: it must hold nothing personal."""

    example: ClassVar[dict[str, Any]] = {
        "object_type": "session",
        "object_id": "s-77",
        "reason": "litigation 2026-9",
    }

    object_type: HeldObject
    object_id: Identifier
    reason: Reason


class HoldsRequest(ListRequest):
    """With `active`, only holds that are not released; without it, all."""

    active: Flag = False


class Release(RequestModel):
    """Why the hold ends. The log keeps `reason` forever: it must hold nothing personal."""

    example: ClassVar[dict[str, Any]] = {"reason": "litigation 2026-9 is settled"}

    hold_id: Identifier
    reason: Reason


async def place_hold(app: AppContext, caller: Caller, request: NewHold) -> HoldShown:
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
        given = (request.object_type, request.object_id, request.reason)
        hold = Hold(prefixed("hld_", app.entropy(16)), *given, caller.by, tx.now)
        record = hold_placed(hold, record_id=app.new_id(), salt=app.entropy(32))
        stored = StoredHold(*hold[:6], (await tx.append(record)).seq)
        await holds.add(tx.connection, tx.tenant_id, stored)
        return stored

    return _shown(await app.store.write(caller.tenant_id, work))


async def list_holds(app: AppContext, caller: Caller, request: HoldsRequest) -> Page[HoldShown]:
    """List legal holds, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await holds.page(
            connection,
            caller.tenant_id,
            is_active=True if request.active else None,
            after=request.after(int, str),
            limit=request.limit + 1,
        )
    return page_of(rows, request.limit, lambda hold: (hold.placed_at, hold.hold_id), _shown)


async def release_hold(app: AppContext, caller: Caller, request: Release) -> HoldShown:
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
                hold.recorded(), caller.by, tx.now, request.reason, record_id=app.new_id()
            )
        )
        await holds.release(tx.connection, tx.tenant_id, hold.hold_id, caller.by, tx.now)
        return replace(hold, released_by=caller.by, released_at=tx.now)

    return _shown(await app.store.write(caller.tenant_id, work))


def _shown(hold: StoredHold) -> HoldShown:
    return HoldShown(
        hold.hold_id,
        hold.object_type,  # type: ignore[arg-type]  # only what `NewHold` accepts is stored
        hold.object_id,
        hold.reason,
        hold.placed_by,
        rfc3339(hold.placed_at),
        hold.seq,
        hold.released_by,
        time_or_none(hold.released_at),
    )
