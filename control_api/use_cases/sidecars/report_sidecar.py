"""Stores a sidecar's status report, and returns the time. No decision depends on a report."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import Identifier, RequestModel, Text, json_integer
from control_api.responses.sidecars import Heard
from control_api.store.queries.fleet import StoredSidecar
from policies.ground.canonical import rfc3339

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


async def report_sidecar(app: AppContext, caller: Caller, request: Report) -> Heard:
    """Report a sidecar's status."""
    now = app.clock.now()
    # `first_seen` is used only for a new sidecar; otherwise `fleet` keeps the first report's.
    row = StoredSidecar(**request.model_dump(), first_seen=now, last_seen=now)
    await app.fleet.report(caller.tenant_id, row)
    # An operator's request may be waiting for this sidecar to reach a revision (`list_sidecars`).
    caller.tenant.wake_report_waiters()
    return Heard(now=rfc3339(app.clock.now()), revision=caller.tenant.policy_set.revision)
