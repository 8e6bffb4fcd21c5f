"""Shows the list of sessions and each session with its trail, and revokes one or many."""

from typing import Any

from control_api.audit.event_operations import show_session_trail
from control_api.console.page import HtmlPage, PageRedirect, Visit, address, get, post
from control_api.sessions.operations import (
    get_session,
    list_sessions,
    revoke_session,
    revoke_sessions,
)
from policies.definitions.model import SENSITIVITIES
from policies.ground.errors import Invalid, SluiceError

FILTERS = ("status", "agent_role")
WHOSE = ("agent_role", "agent_id", "user_id")
"""The fields of a session by which many sessions can be revoked together."""
DONE = {"revoked": "Revoked. Every further call in it is denied."}


async def show_sessions(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    given = visit.filled(*FILTERS)
    values: dict[str, Any] = {
        "given": given,
        "sessions": None,
        "may_revoke": visit.may_call(revoke_sessions),
        "typed": visit.form,
        "done_text": _done(visit),
    }
    try:
        values["sessions"] = await visit.call(
            list_sessions, limit="50", **given, **visit.filled("cursor")
        )
    except SluiceError as error:
        problem = error
    return HtmlPage("sessions/list.html", values, problem)


def _done(visit: Visit) -> str | None:
    done = visit.query.get("done", "")
    if done.isascii() and done.isdigit():
        return f"{int(done[:9]):,} sessions were revoked."
    return DONE.get(done)


async def show_session(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show a session: its owner, its state, and the decisions made in it, in order."""
    session_id = visit.required("id")
    session = await visit.call(get_session, session_id=session_id)
    trail = await visit.call(
        show_session_trail, session_id=session_id, limit="50", **visit.filled("cursor")
    )
    values = {
        "session": session,
        "trail": trail,
        "levels": SENSITIVITIES,
        "may_revoke": visit.may_call(revoke_session),
        "typed": visit.form,
        "done_text": _done(visit),
    }
    return HtmlPage("sessions/one.html", values, problem)


async def revoke_one(visit: Visit) -> PageRedirect:
    session_id = visit.required("id")
    await visit.call(revoke_session, session_id=session_id, reason=_reason(visit))
    return PageRedirect(address("/session", id=session_id, done="revoked"))


async def preview_revocation(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show how many sessions would be revoked, and the form that revokes them."""
    given = {name: visit.form.get(name) or visit.query.get(name) or "" for name in WHOSE}
    wanted = {name: value for name, value in given.items() if value}
    count = None
    if wanted and problem is None:
        try:
            counted = await visit.call(revoke_sessions, **wanted, reason="preview", dry_run=True)
            count = counted.revoked
        except SluiceError as error:
            problem = error
    values = {"given": given, "wanted": wanted, "count": count, "typed": visit.form}
    return HtmlPage("sessions/revoke.html", values, problem)


async def revoke_many(visit: Visit) -> PageRedirect:
    wanted = {name: visit.form.text(name) for name in WHOSE}
    done = await visit.call(revoke_sessions, **wanted, reason=_reason(visit))
    return PageRedirect(address("/sessions", done=str(done.revoked)))


def _reason(visit: Visit) -> str:
    reason = visit.form.text("reason")
    if reason is None:
        raise Invalid("say why")
    return reason


PAGES = (
    get("/sessions", list_sessions, show_sessions),
    get("/session", get_session, show_session),
    post("/session/revoke", revoke_session, revoke_one, show_session),
    get("/sessions/revoke", revoke_sessions, preview_revocation),
    post("/sessions/revoke", revoke_sessions, revoke_many, preview_revocation),
)
