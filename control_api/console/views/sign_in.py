"""Signs people in (by an API key, a one-time link, or OpenID Connect) and out, and shows their
account and sessions."""

import re

from control_api.console.page import (
    ANYONE,
    ROOT,
    SIGNED_IN,
    HtmlPage,
    PageRedirect,
    Visit,
    address,
    get,
    post,
)
from control_api.console.sessions import (
    ATTEMPT,
    attempt_cookie,
    no_cookie,
    presented_cookie,
    session_cookie,
)
from control_api.signin.attempt import MAX_SECONDS, Attempt
from control_api.signin.operations import (
    Offer,
    begin_at_provider,
    list_console_sessions,
    revoke_console_session,
    sign_in_by_provider,
    sign_out_address,
)
from policies.ground.errors import SluiceError

DONE = {"ended": "The session has ended."}


async def show_account(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    page = await visit.call(list_console_sessions, limit="50", **visit.filled("cursor"))
    who = visit.signed_in
    values = {
        "sessions": page.rows,
        "next": page.next,
        "session": who.visitor.session,
        "may_end_all": who.caller.scope != "read",
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("account.html", values, problem)


async def end_session(visit: Visit) -> PageRedirect:
    """End a session of the console: the visitor's own or another one."""
    session_id = visit.form.get("session_id", "")
    await visit.call(revoke_console_session, session_id=session_id)
    if session_id == visit.signed_in.session_id:
        return PageRedirect(f"{ROOT}/sign-in", {"Set-Cookie": no_cookie(secure=visit.secure)})
    return PageRedirect(address("/account", done="ended"))


SMALL = 16 * 1024
"""The most bytes of the forms that need no sign-in, since anyone may send them."""
_PAGE = re.compile(rf"{ROOT}(/[a-z][a-z0-9.-]*)*\Z")


async def show_sign_in(visit: Visit) -> HtmlPage | PageRedirect:
    """Show the form for a key. A visitor who is signed in already is sent on to the page in
    `to`."""
    if visit.who is not None and visit.query.get("to"):
        return PageRedirect(own_page(visit.query["to"]))
    return _form(visit)


async def sign_in(visit: Visit) -> HtmlPage | PageRedirect:
    assert visit.sessions is not None
    key = visit.form.get("key", "").strip()
    try:
        cookie = await visit.sessions.begin(key, visit.browser, visit.remote)
    except SluiceError as error:
        return _form(visit, error)
    return await enter(visit, cookie)


async def sign_in_by_link(visit: Visit) -> HtmlPage | PageRedirect:
    assert visit.sessions is not None
    code = visit.form.get("code", "")
    try:
        cookie = await visit.sessions.begin_by_link(code, visit.browser, visit.remote)
    except SluiceError as error:
        return _form(visit, error, by_link=True)
    return await enter(visit, cookie)


async def sign_out(visit: Visit) -> PageRedirect:
    assert visit.sessions is not None
    await visit.sessions.end(visit.signed_in)
    left = "1" if visit.signed_in.visitor.session.method == "oidc" else None
    return PageRedirect(
        address("/sign-in", left=left), {"Set-Cookie": no_cookie(secure=visit.secure)}
    )


async def enter(visit: Visit, cookie: str) -> PageRedirect:
    """Give a visitor who has just signed in the session's cookie, and lead them to the page that
    they asked for. A session that the browser had before is ended, since the person who set it may
    know its secret."""
    if visit.who is not None and visit.sessions is not None:
        await visit.sessions.end(visit.who)
    headers = {"Set-Cookie": session_cookie(cookie, secure=visit.secure)}
    return PageRedirect(own_page(visit.form.get("to", "")), headers)


def own_page(to: str) -> str:
    """Return `to` if it is the address of one of our pages, otherwise that of the first page. A
    link with another target would lead people to a foreign site."""
    path = to.partition("?")[0]
    # Browsers take `\` for `/` and `%2e` for `.`, and skip line breaks and tabs.
    plain = to.isascii() and to.isprintable() and "\\" not in to and " " not in to
    # A page that begins or ends a sign-in would do so unasked, as a link on another site says.
    signs = path.startswith((f"{ROOT}/sign-", f"{ROOT}/oidc"))
    return to if _PAGE.match(path) and plain and not signs else ROOT


def _form(visit: Visit, problem: SluiceError | None = None, *, by_link: bool = False) -> HtmlPage:
    to = visit.query.get("to") or visit.form.get("to", "")
    values = {"to": to, "by_link": by_link}
    return HtmlPage("sign_in.html", values, problem)


_FOREIGN = ("cross-site", "same-site")


async def begin_single_sign_on(visit: Visit) -> HtmlPage | PageRedirect:
    """Begin an attempt to sign in by OpenID Connect: send the browser to the identity provider,
    with a cookie that holds the attempt."""
    to = own_page(visit.query.get("to", ""))
    if visit.headers.get("Sec-Fetch-Site") in _FOREIGN:
        # A link on another site must not change who, or in which tenant, the visitor is.
        return PageRedirect(address("/sign-in", to=to))
    attempt = Attempt.new(visit.console.signin.entropy, to, visit.query.get("realm", ""))
    try:
        location = await begin_at_provider(visit.console.signin, attempt)
    except SluiceError as error:
        return _choice_form(to, error)
    cookie = attempt_cookie(attempt.to_cookie(), MAX_SECONDS, secure=visit.secure)
    return PageRedirect(location, {"Set-Cookie": cookie})


async def end_single_sign_on(visit: Visit) -> HtmlPage:
    """Begin the session of the person whom the identity provider sent back.

    Answers with a page that goes on by itself, not with a redirect: after a redirect that another
    site began, the browser does not send the session's cookie.
    """
    attempt = Attempt.from_cookie(presented_cookie(visit.cookies, ATTEMPT, secure=visit.secure))
    to = own_page("" if attempt is None else attempt.to)
    try:
        began = await sign_in_by_provider(visit.console.signin, visit.query, attempt, visit.browser)
    except SluiceError as error:
        spent = attempt_cookie("", 0, secure=visit.secure)
        return _choice_form(to, error, {"Set-Cookie": spent})
    if isinstance(began, list):
        return HtmlPage("choose_tenant.html", {"offers": [_choice(each, to) for each in began]})
    if visit.who is not None and visit.sessions is not None:
        # Where the provider is of our own site, the session before comes along.
        await visit.sessions.end(visit.who)
    headers = {"Set-Cookie": session_cookie(began.token.write(), secure=visit.secure)}
    return HtmlPage("enter.html", {"to": to}, headers=headers)


async def sign_out_at_provider(visit: Visit) -> PageRedirect:
    """End the browser's session at the identity provider too, if it has a page for that; otherwise
    lead to the sign-in page."""
    return PageRedirect(await sign_out_address(visit.console.signin) or f"{ROOT}/sign-in")


def _choice(offer: Offer, to: str) -> dict[str, str]:
    # The provider is asked again, and knows the person already: so this page needs no form, and
    # what the groups may do is looked at anew.
    return {
        "tenant": offer.grant.tenant_id or "",
        "scope": offer.grant.scope,
        "address": address("/oidc", realm=offer.realm, to=to),
    }


def _choice_form(to: str, problem: SluiceError, headers: dict[str, str] | None = None) -> HtmlPage:
    values = {"to": to, "by_link": False}
    return HtmlPage("sign_in.html", values, problem, headers=headers or {})


PAGES = (
    get("/account", list_console_sessions, show_account),
    post("/account/end-session", revoke_console_session, end_session, show_account),
    get("/sign-in", ANYONE, show_sign_in),
    post("/sign-in", ANYONE, sign_in, max_body=SMALL),
    post("/sign-in/link", ANYONE, sign_in_by_link, max_body=SMALL),
    post("/sign-out", SIGNED_IN, sign_out, max_body=SMALL),
    get("/oidc", ANYONE, begin_single_sign_on),
    get("/oidc/callback", ANYONE, end_single_sign_on),
    get("/oidc/sign-out", ANYONE, sign_out_at_provider),
)
