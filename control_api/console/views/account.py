"""Who is signed in: oneself, and everyone else of the tenant."""

from control_api.console.cookies import no_cookie
from control_api.console.page import Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit, address
from control_api.signin.operations import list_console_sessions, revoke_console_session
from policies.ground.errors import SluiceError

DONE = {"ended": "The session has ended."}


async def show_account(visit: Visit, problem: SluiceError | None = None) -> Html:
    """Who I am, and the sessions of the tenant."""
    page = await visit.call(list_console_sessions, limit="50", **visit.given("cursor"))
    who = visit.signed_in
    values = {
        "sessions": page.rows,
        "next": page.next,
        "session": who.visitor.session,
        "may_end_all": who.caller.scope != "read",
        "done_text": DONE.get(visit.query.get("done", "")),
        "problem": problem,
    }
    return Html("account.html", values, 200 if problem is None else problem.status)


async def end_session(visit: Visit) -> Html | See:
    """End a session, one's own or another's."""
    session_id = visit.form.get("session_id", "")
    try:
        await visit.call(revoke_console_session, session_id=session_id)
    except SluiceError as error:
        return await show_account(visit, error)
    if session_id == visit.signed_in.session_id:
        return See(f"{ROOT}/sign-in", {"Set-Cookie": no_cookie(secure=visit.secure)})
    return See(address("/account", done="ended"))


PAGES = (
    Page("GET", f"{ROOT}/account", list_console_sessions, show_account),
    Page("POST", f"{ROOT}/account/end-session", revoke_console_session, end_session),
)
