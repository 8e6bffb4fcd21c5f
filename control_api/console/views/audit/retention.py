"""Shows the console's pages of retention, erasures and legal holds, and takes their forms."""

from typing import Any

from control_api.audit.erasure_operations import (
    HoldResponse,
    RedactionResponse,
    list_holds,
    list_redactions,
    place_hold,
    redact_events,
    release_hold,
)
from control_api.audit.event_models import Retention
from control_api.audit.retention_operations import (
    RetentionSettings,
    change_retention_settings,
    show_retention,
    show_retention_settings,
)
from control_api.console.page import HtmlPage, PageRedirect, Visit, address, get, post
from control_api.edge.answers import Page
from policies.ground.errors import Invalid, SluiceError

DONE = {"changed": "Changed. The next purge, within an hour, applies it."}


async def show_retention_page(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    found: Retention | None = None
    settings: RetentionSettings | None = None
    try:
        settings = await visit.call(show_retention_settings)
        found = await visit.call(show_retention)
    except SluiceError as error:
        problem = problem or error
    purged = None if found is None or found.anchor is None else str(found.anchor.tree_size)
    values = {
        "found": found,
        "settings": settings,
        "done_text": DONE.get(visit.query.get("done", "")),
        "may_change": visit.may_call(change_retention_settings),
        "growth": purged and address("/decision/growth", **{"from": purged}),
        "typed": visit.form,
    }
    return HtmlPage("audit/retention.html", values, problem)


async def change(visit: Visit) -> PageRedirect:
    await visit.call(
        change_retention_settings,
        retention_days=_days(visit, "retention_days"),
        session_retention_days=_days(visit, "session_retention_days"),
    )
    return PageRedirect(address("/audit/retention", done="changed"))


def _days(visit: Visit, name: str) -> int:
    text = visit.form.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise Invalid(f"`{name}`: must be a number of days from 0 to 3650; 0 keeps forever")
    return int(text)


ERASURE_KINDS = (
    ("user_id", "User"),
    ("session_id", "Session"),
    ("event_ids", "Events, one id a line"),
)
ERASURES_DONE = {
    "erased": "Erased. The newest erasure below says of which entries.",
    "more": "A part is erased, and more remains: send the same request again.",
    "nothing": "There was nothing to erase: no stored value matches, or all is erased already.",
}


async def show_erasures(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    page: Page[RedactionResponse] = Page([])
    try:
        page = await visit.call(list_redactions, limit="50", **visit.filled("cursor"))
    except SluiceError as error:
        problem = problem or error
    done = visit.query.get("done", "")
    values = {
        "erasures": page.rows,
        "next": page.next,
        "done_text": ERASURES_DONE.get(done),
        "is_partial": done == "more",
        "may_erase": visit.may_call(redact_events),
        "kinds": ERASURE_KINDS,
        "typed": visit.form,
    }
    return HtmlPage("audit/erasures.html", values, problem)


async def erase(visit: Visit) -> PageRedirect:
    done = await visit.call(redact_events, **_erasure(visit))
    if not done.redacted and not done.sessions:
        return PageRedirect(address("/audit/erasures", done="nothing"))
    return PageRedirect(address("/audit/erasures", done="more" if done.more else "erased"))


def _erasure(visit: Visit) -> dict[str, Any]:
    form = visit.form
    kind, whose = form.get("kind"), form.text("whose")
    if kind not in dict(ERASURE_KINDS):
        raise Invalid("choose whose values to erase")
    if form.get("final") != "yes":
        raise Invalid("confirm that this can't be undone")
    target = whose.split() if whose is not None and kind == "event_ids" else whose
    return {kind: target, "reason": form.text("reason")}


HOLD_KINDS = (("session", "Session"), ("agent", "Agent"), ("user", "User"))
HOLDS_DONE = {
    "placed": "The hold is placed: nothing of it is removed or erased until it is released.",
    "released": "The hold is released.",
}


async def show_holds(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    is_all = visit.query.get("all") == "yes"
    page: Page[HoldResponse] = Page([])
    try:
        active = None if is_all else "true"
        page = await visit.call(list_holds, limit="50", active=active, **visit.filled("cursor"))
    except SluiceError as error:
        problem = problem or error
    values = {
        "holds": page.rows,
        "next": page.next,
        "is_all": is_all,
        "done_text": HOLDS_DONE.get(visit.query.get("done", "")),
        "may_place": visit.may_call(place_hold),
        "kinds": HOLD_KINDS,
        "typed": visit.form,
    }
    return HtmlPage("audit/holds.html", values, problem)


async def place(visit: Visit) -> PageRedirect:
    form = visit.form
    await visit.call(
        place_hold,
        object_type=form.get("object_type"),
        object_id=form.text("object_id"),
        reason=form.text("reason"),
    )
    return PageRedirect(address("/audit/holds", done="placed"))


async def release(visit: Visit) -> PageRedirect:
    form = visit.form
    await visit.call(release_hold, hold_id=form.get("hold_id"), reason=form.text("why"))
    return PageRedirect(address("/audit/holds", done="released"))


PAGES = (
    get("/audit/retention", show_retention, show_retention_page),
    post("/audit/retention/change", change_retention_settings, change, show_retention_page),
    get("/audit/erasures", list_redactions, show_erasures),
    post("/audit/erasures/erase", redact_events, erase, show_erasures),
    get("/audit/holds", list_holds, show_holds),
    post("/audit/holds/place", place_hold, place, show_holds),
    post("/audit/holds/release", release_hold, release, show_holds),
)
