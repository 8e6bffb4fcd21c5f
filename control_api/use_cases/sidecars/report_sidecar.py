"""Stores a sidecar's status report, and returns the time. No decision depends on a report."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.log.proofs.prove import prove_growth
from control_api.requests.base import Identifier, RequestModel, Text, json_integer
from control_api.responses.sidecars import Heard
from control_api.store.queries import log_keys
from control_api.store.queries.checkpoints import readable_latest
from control_api.store.queries.fleet import StoredSidecar
from policies.ground.canonical import b64, rfc3339
from policies.ground.errors import SluiceError

# RFC 7493, section 2.2: a reader that treats numbers as doubles loses precision beyond 2**53.
Count = Annotated[int, Field(ge=0, lt=1 << 53), BeforeValidator(json_integer)]


class Report(RequestModel):
    """A sidecar's status. Fields added by a newer sidecar are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    example: ClassVar[dict[str, Any]] = {
        "sidecar_id": "sidecar-1",
        "run_id": "9f1c2a7b00d1",
        "version": "1.0.0",
        "agent_id": "agt_loans",
        "agent_role": "loan_underwriter",
        "epoch": "0194bd6e7c007a1b",
        "revision": 42,
        "policy_set_age_ms": 1200,
        "spool_depth": 0,
        "oldest_unshipped_ms": None,
        "refusing": None,
        "workload": None,
        "enrolled_until": None,
        "pinned_size": None,
        "forked": None,
        "source_levels": True,
    }

    sidecar_id: Identifier
    run_id: Identifier
    version: Identifier
    agent_id: Identifier | None = None
    agent_role: Identifier | None = None
    epoch: Text
    revision: Count
    policy_set_age_ms: Count | None = None
    spool_depth: Count
    oldest_unshipped_ms: Count | None = None
    refusing: Text | None = None
    workload: Text | None = None
    enrolled_until: Text | None = None
    pinned_size: Count | None = None
    forked: Text | None = None
    source_levels: bool = False


async def report_sidecar(app: AppContext, caller: Caller, request: Report) -> Heard:
    """Report a sidecar's status."""
    await app.isolation.require_sidecar(caller, request.sidecar_id, "report_sidecar")
    if request.agent_id is not None:
        await app.isolation.require_agent(caller, request.agent_id, "report_sidecar")
    now = app.clock.now()
    # `first_seen` is used only for a new sidecar; otherwise `fleet` keeps the first report's.
    row = StoredSidecar(
        **request.model_dump(exclude={"pinned_size"}), first_seen=now, last_seen=now
    )
    await app.fleet.report(caller.tenant_id, row)
    # An operator's request may be waiting for this sidecar to reach a revision (`list_sidecars`).
    caller.tenant.wake_report_waiters()
    note, hashes = await _checkpoint(app, caller.tenant_id, request.pinned_size)
    return Heard(
        now=rfc3339(app.clock.now()),
        revision=caller.tenant.policy_set.revision,
        checkpoint=note,
        consistency=hashes,
    )


async def _checkpoint(
    app: AppContext, tenant_id: str, pinned: int | None
) -> tuple[str | None, list[str] | None]:
    """The latest checkpoint, and the proof that it continues the one of `pinned` entries. None for
    a sidecar that has not asked, and where there is none."""
    if pinned is None:
        return None, None
    async with app.store.reading(tenant_id) as connection:
        latest = await readable_latest(connection, tenant_id)
    if latest is None:
        return None, None
    if not 0 < pinned < latest.size:
        return latest.note, []
    try:
        publics = await log_keys.trusted(app.store, app.ring)
        grown = await prove_growth(app.store, tenant_id, pinned, latest.size, publics)
    except SluiceError:
        # Purged, say, or of another incarnation. The sidecar keeps what it has pinned, and asks
        # again; `verify` says what is wrong with the log.
        return latest.note, None
    return grown.note, [b64(each) for each in grown.hashes]
