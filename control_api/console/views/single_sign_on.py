"""Signing in by OpenID Connect: to the identity provider, and back."""

from control_api.console.cookies import ATTEMPT, attempt_cookie, presented_cookie, session_cookie
from control_api.console.page import ANYONE, Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.views.sign_in import own_page
from control_api.console.visit import Visit, address
from control_api.signin.attempt import MAX_SECONDS, Attempt
from control_api.signin.operations import (
    Offer,
    begin_at_provider,
    sign_in_by_provider,
    sign_out_address,
)
from policies.ground.errors import SluiceError

_FOREIGN = ("cross-site", "same-site")


async def begin_single_sign_on(visit: Visit) -> Html | See:
    """Send the browser to the identity provider."""
    to = own_page(visit.query.get("to", ""))
    if visit.headers.get("Sec-Fetch-Site") in _FOREIGN:
        # A link on another site must not change who, or in which tenant, the visitor is.
        return See(address("/sign-in", to=to))
    attempt = Attempt.new(visit.console.signin.entropy, to, visit.query.get("realm", ""))
    try:
        location = await begin_at_provider(visit.console.signin, attempt)
    except SluiceError as error:
        return _form(to, error)
    cookie = attempt_cookie(attempt.to_cookie(), MAX_SECONDS, secure=visit.secure)
    return See(location, {"Set-Cookie": cookie})


async def end_single_sign_on(visit: Visit) -> Html:
    """Begin the session of the person that the provider sent back.

    Answers with a page that goes on by itself, not with a redirect: after a redirect that another
    site began, the browser keeps the session's cookie back.
    """
    attempt = Attempt.from_cookie(presented_cookie(visit.cookies, ATTEMPT, secure=visit.secure))
    to = own_page("" if attempt is None else attempt.to)
    try:
        began = await sign_in_by_provider(visit.console.signin, visit.query, attempt, visit.browser)
    except SluiceError as error:
        spent = attempt_cookie("", 0, secure=visit.secure)
        return _form(to, error, {"Set-Cookie": spent})
    if isinstance(began, list):
        return Html("choose_tenant.html", {"offers": [_choice(each, to) for each in began]})
    if visit.who is not None and visit.sessions is not None:
        # Where the provider is of our own site, the session before comes along.
        await visit.sessions.end(visit.who)
    headers = {"Set-Cookie": session_cookie(began.token.write(), secure=visit.secure)}
    return Html("enter.html", {"to": to}, headers=headers)


async def sign_out_at_provider(visit: Visit) -> See:
    """End the browser's session at the identity provider too, where it has a page for that."""
    return See(await sign_out_address(visit.console.signin) or f"{ROOT}/sign-in")


def _choice(offer: Offer, to: str) -> dict[str, str]:
    # The provider is asked again, and knows the person already: so this page needs no form, and
    # what the groups may do is looked at anew.
    return {
        "tenant": offer.grant.tenant_id or "",
        "scope": offer.grant.scope,
        "address": address("/oidc", realm=offer.realm, to=to),
    }


def _form(to: str, problem: SluiceError, headers: dict[str, str] | None = None) -> Html:
    return Html(
        "sign_in.html",
        {"to": to, "problem": problem, "by_link": False},
        problem.status,
        headers or {},
    )


PAGES = (
    Page("GET", f"{ROOT}/oidc", ANYONE, begin_single_sign_on),
    Page("GET", f"{ROOT}/oidc/callback", ANYONE, end_single_sign_on),
    Page("GET", f"{ROOT}/oidc/sign-out", ANYONE, sign_out_at_provider),
)
