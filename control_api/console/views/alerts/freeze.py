"""The page of the emergency freeze: freeze the tenant, see since when, why and by whom,
lift it. Each page of the console says so while one holds (`pipeline.py`)."""

from control_api.audit.change_operations import list_changes
from control_api.console.page import Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit, address
from control_api.tenants.operations import freeze_tenant, lift_freeze, show_freeze
from policies.ground.canonical import micros, rfc3339
from policies.ground.errors import SluiceError, invalid

DONE = {
    "frozen": "The tenant is frozen: every evaluation is denied.",
    "lifted": "The freeze is lifted: policies decide again.",
}
_SECOND = 1_000_000  # microseconds


async def show_freeze_page(visit: Visit, problem: SluiceError | None = None) -> Html:
    """Whether the tenant is frozen, since when, why and by whom."""
    state = await visit.call(show_freeze)
    values = {
        "state": state,
        "by": None if state.frozen_at is None else await _who_froze(visit, state.frozen_at),
        "reason": visit.form.get("reason", ""),
        "may_freeze": visit.may(freeze_tenant),
        "done_text": DONE.get(visit.query.get("done", "")),
        "problem": problem,
    }
    return Html("alerts/freeze.html", values, 200 if problem is None else problem.status)


async def _who_froze(visit: Visit, frozen_at: str) -> str | None:
    """Who did it, by the audit trail; None if its entry is not kept any more."""
    # The entry is written within the transaction, which waits for others of the tenant.
    begin = micros(frozen_at)
    times = {"from": rfc3339(begin - _SECOND), "to": rfc3339(begin + 60 * _SECOND)}
    found = await visit.call(
        list_changes, object_type="tenant", action="frozen", limit="1", **times
    )
    return found.rows[0].actor if found.rows else None


async def freeze(visit: Visit) -> Html | See:
    """Deny every evaluation of the tenant from now on."""
    try:
        reason = visit.form.text("reason")
        if reason is None:
            raise invalid(["reason: say why, for those who will ask"], "form")
        await visit.call(freeze_tenant, reason=reason)
    except SluiceError as error:
        return await show_freeze_page(visit, error)
    return See(address("/alerts/freeze", done="frozen"))


async def lift(visit: Visit) -> Html | See:
    """End the freeze."""
    try:
        if visit.form.get("sure") != "yes":
            raise invalid(["sure: check the box first"], "form")
        await visit.call(lift_freeze)
    except SluiceError as error:
        return await show_freeze_page(visit, error)
    return See(address("/alerts/freeze", done="lifted"))


PAGES = (
    Page("GET", f"{ROOT}/alerts/freeze", show_freeze, show_freeze_page),
    Page("POST", f"{ROOT}/alerts/freeze/begin", freeze_tenant, freeze),
    Page("POST", f"{ROOT}/alerts/freeze/lift", lift_freeze, lift),
)
