"""Erasures of personal values: which were made, and asking for one."""

from typing import Any

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.visit import Visit, address
from control_api.responses.erasure import RedactionShown
from control_api.responses.paging import Page as Listed
from control_api.use_cases.erasure.list_redactions import list_redactions
from control_api.use_cases.erasure.redact_events import redact_events
from policies.ground.errors import Invalid, SluiceError

KINDS = (("user_id", "User"), ("session_id", "Session"), ("event_ids", "Events, one id a line"))
DONE = {
    "erased": "Erased. The newest erasure below says of which entries.",
    "more": "A part is erased, and more remains: send the same request again.",
    "nothing": "There was nothing to erase: no stored value matches, or all is erased already.",
}


async def show_erasures(visit: Visit, problem: SluiceError | None = None) -> Html:
    """The erasures that the log records, newest first."""
    page: Listed[RedactionShown] = Listed([])
    try:
        page = await visit.call(list_redactions, limit="50", **visit.given("cursor"))
    except SluiceError as error:
        problem = problem or error
    done = visit.query.get("done", "")
    values = {
        "erasures": page.rows,
        "next": page.next,
        "problem": problem,
        "done_text": DONE.get(done),
        "is_partial": done == "more",
        "may_erase": visit.may(redact_events),
        "kinds": KINDS,
        "typed": visit.form,
    }
    return Html("audit/erasures.html", values, 200 if problem is None else problem.status)


async def erase(visit: Visit) -> Html | See:
    """Erase the personal values of a user, a session, or some events."""
    try:
        done = await visit.call(redact_events, **_asked(visit))
    except SluiceError as error:
        return await show_erasures(visit, error)
    if not done.redacted and not done.sessions:
        return See(address("/audit/erasures", done="nothing"))
    return See(address("/audit/erasures", done="more" if done.more else "erased"))


def _asked(visit: Visit) -> dict[str, Any]:
    form = visit.form
    kind, whose = form.get("kind"), form.text("whose")
    if kind not in dict(KINDS):
        raise Invalid("choose whose values to erase")
    if form.get("final") != "yes":
        raise Invalid("confirm that this can't be undone")
    target = whose.split() if whose is not None and kind == "event_ids" else whose
    return {kind: target, "reason": form.text("reason")}


PAGES = (
    Page("GET", f"{ROOT}/audit/erasures", list_redactions, show_erasures),
    Page("POST", f"{ROOT}/audit/erasures/erase", redact_events, erase),
)
