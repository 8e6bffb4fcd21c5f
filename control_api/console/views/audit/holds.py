"""Legal holds: which there are, placing and releasing them."""

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.visit import Visit, address
from control_api.responses.erasure import HoldShown
from control_api.responses.paging import Page as Listed
from control_api.use_cases.erasure.legal_holds import list_holds, place_hold, release_hold
from policies.ground.errors import SluiceError

KINDS = (("session", "Session"), ("agent", "Agent"), ("user", "User"))
DONE = {
    "placed": "The hold is placed: nothing of it is removed or erased until it is released.",
    "released": "The hold is released.",
}


async def show_holds(visit: Visit, problem: SluiceError | None = None) -> Html:
    """The holds, newest first: those in force, or all."""
    is_all = visit.query.get("all") == "yes"
    page: Listed[HoldShown] = Listed([])
    try:
        active = None if is_all else "true"
        page = await visit.call(list_holds, limit="50", active=active, **visit.given("cursor"))
    except SluiceError as error:
        problem = problem or error
    values = {
        "holds": page.rows,
        "next": page.next,
        "is_all": is_all,
        "problem": problem,
        "done_text": DONE.get(visit.query.get("done", "")),
        "may_place": visit.may(place_hold),
        "kinds": KINDS,
        "typed": visit.form,
    }
    return Html("audit/holds.html", values, 200 if problem is None else problem.status)


async def place(visit: Visit) -> Html | See:
    """Place a hold."""
    form = visit.form
    try:
        await visit.call(
            place_hold,
            object_type=form.get("object_type"),
            object_id=form.text("object_id"),
            reason=form.text("reason"),
        )
    except SluiceError as error:
        return await show_holds(visit, error)
    return See(address("/audit/holds", done="placed"))


async def release(visit: Visit) -> Html | See:
    """Release a hold."""
    form = visit.form
    try:
        await visit.call(release_hold, hold_id=form.get("hold_id"), reason=form.text("why"))
    except SluiceError as error:
        return await show_holds(visit, error)
    return See(address("/audit/holds", done="released"))


PAGES = (
    Page("GET", f"{ROOT}/audit/holds", list_holds, show_holds),
    Page("POST", f"{ROOT}/audit/holds/place", place_hold, place),
    Page("POST", f"{ROOT}/audit/holds/release", release_hold, release),
)
