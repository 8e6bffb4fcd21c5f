"""Erases the personal values of audit events, for good (`audit-trail.md`, Commitments)."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log.erasure.erase import Erasure, ErasureRequest
from control_api.requests.base import Identifier, Reason, RequestModel
from control_api.responses.erasure import Redacted
from control_api.store.queries.redactions import ErasureTarget
from policies.ground.errors import invalid

MAX_IDS = 1000
ONE = "event_ids, user_id, session_id: exactly one is required"


class Redaction(RequestModel):
    """Whose values to erase: exactly one of the three. The log keeps `reason`, and the id of the
    key that asked, forever: neither may hold anything personal."""

    example: ClassVar[dict[str, Any]] = {"user_id": "u-1001", "reason": "erasure request 2026-114"}

    event_ids: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_IDS)] | None = None
    user_id: Identifier | None = None
    session_id: Identifier | None = None
    reason: Reason


async def redact_events(app: AppContext, caller: Caller, request: Redaction) -> Redacted:
    """Erase what events hold of a person: `user_id` and `query`, and the `detail` of their lineage.

    Every hash still verifies. A session loses its `user_id` with its last event's. A legal hold on
    any of it refuses all of it. Repeatable: what is gone already counts 0. While `more` is true,
    send the same request again. The user's id is matched exactly as recorded, and is not recorded
    anew; `reason` is, so it must hold nothing personal.
    """
    erasure = Erasure(
        app.store,
        ErasureRequest(caller.tenant_id, _target(request), caller.by, request.reason),
        app.new_id,
    )
    try:
        done = await erasure.run()
    finally:
        # Also after a failure half way: what was erased has to go from the files.
        app.erased.set()
    return Redacted(done.entries, done.sessions, done.seq, done.more)


def _target(request: Redaction) -> ErasureTarget:
    given = [request.event_ids, request.user_id, request.session_id]
    if sum(each is not None for each in given) != 1:
        raise invalid([ONE])
    if request.user_id is not None:
        return ErasureTarget("user_id", request.user_id)
    if request.session_id is not None:
        return ErasureTarget("session_id", request.session_id)
    return ErasureTarget(None, "", tuple(request.event_ids or ()))
