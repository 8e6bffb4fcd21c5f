"""Signing in, by an API key or a one-time link, and out."""

import re

from control_api.console.cookies import no_cookie, session_cookie
from control_api.console.page import ANYONE, SIGNED_IN, Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit, address
from policies.ground.errors import SluiceError

SMALL = 16 * 1024
"""Bytes: anyone may send these forms."""
_PAGE = re.compile(rf"{ROOT}(/[a-z][a-z0-9.-]*)*\Z")


async def show_sign_in(visit: Visit) -> Html | See:
    """The form for a key. Who is signed in already is led on to where a link led."""
    if visit.who is not None and visit.query.get("to"):
        return See(own_page(visit.query["to"]))
    return _form(visit)


async def sign_in(visit: Visit) -> Html | See:
    """Begin a session with an API key."""
    assert visit.sessions is not None
    key = visit.form.get("key", "").strip()
    try:
        cookie = await visit.sessions.begin(key, visit.browser, visit.remote)
    except SluiceError as error:
        return _form(visit, error)
    return await enter(visit, cookie)


async def sign_in_by_link(visit: Visit) -> Html | See:
    """Begin a session with the code of a one-time link."""
    assert visit.sessions is not None
    code = visit.form.get("code", "")
    try:
        cookie = await visit.sessions.begin_by_link(code, visit.browser, visit.remote)
    except SluiceError as error:
        return _form(visit, error, by_link=True)
    return await enter(visit, cookie)


async def sign_out(visit: Visit) -> See:
    """End the session."""
    assert visit.sessions is not None
    await visit.sessions.end(visit.signed_in)
    left = "1" if visit.signed_in.visitor.session.method == "oidc" else None
    return See(address("/sign-in", left=left), {"Set-Cookie": no_cookie(secure=visit.secure)})


async def enter(visit: Visit, cookie: str) -> See:
    """Lead a visitor whose session has just begun to the page that was asked for. A session that
    the browser had before ends: its secret may be known to the person who set it."""
    if visit.who is not None and visit.sessions is not None:
        await visit.sessions.end(visit.who)
    headers = {"Set-Cookie": session_cookie(cookie, secure=visit.secure)}
    return See(own_page(visit.form.get("to", "")), headers)


def own_page(to: str) -> str:
    """`to` if it is an address of ours, otherwise the first page: a link with another target would
    lead people elsewhere."""
    path = to.partition("?")[0]
    # Browsers take `\` for `/` and `%2e` for `.`, and skip line breaks and tabs.
    plain = to.isascii() and to.isprintable() and "\\" not in to and " " not in to
    # A page that begins or ends a sign-in would do so unasked, as a link on another site says.
    signs = path.startswith((f"{ROOT}/sign-", f"{ROOT}/oidc"))
    return to if _PAGE.match(path) and plain and not signs else ROOT


def _form(visit: Visit, problem: SluiceError | None = None, *, by_link: bool = False) -> Html:
    to = visit.query.get("to") or visit.form.get("to", "")
    values = {"to": to, "problem": problem, "by_link": by_link}
    return Html("sign_in.html", values, 200 if problem is None else problem.status)


PAGES = (
    Page("GET", f"{ROOT}/sign-in", ANYONE, show_sign_in),
    Page("POST", f"{ROOT}/sign-in", ANYONE, sign_in, SMALL),
    Page("POST", f"{ROOT}/sign-in/link", ANYONE, sign_in_by_link, SMALL),
    Page("POST", f"{ROOT}/sign-out", SIGNED_IN, sign_out, SMALL),
)
