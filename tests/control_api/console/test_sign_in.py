"""Signing in, staying signed in, and every way to lose a session or to be refused one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from control_api.console import static
from control_api.console.page import Page
from control_api.console.pages import PAGES
from control_api.console.sessions import presented_cookie, session_cookie
from control_api.console.views.sign_in import own_page
from control_api.signin import queries
from control_api.signin.queries import SignInLink
from tests.control_api.console.reader import Visitor
from tests.support.control_api import SUPERADMIN, ControlApi

GUARDED = [page for page in PAGES if page.scopes is not None]
COOKIE = "sluice_console"
SCRIPTS = Path(static.__file__).with_name("static")


def ids(page: Page) -> str:
    return f"{page.method} {page.path}"


def token_of(visitor: Visitor) -> str:
    return visitor.get("/console/account").page.find("input", name="csrf").attributes["value"]


def is_signed_in(visitor: Visitor) -> bool:
    return visitor.get("/console/account", follow=False).status == 200


@pytest.mark.parametrize("page", GUARDED, ids=ids)
def test_a_page_without_a_live_session_shows_nothing(api: ControlApi, page: Page) -> None:
    for cookie in ("", "default." + "a" * 43, "x" * 4000, "superadmin.", "caf\xe9.\xff"):
        visitor = Visitor(api)
        visitor.cookies = {COOKIE: cookie} if cookie else {}
        if page.method == "GET":
            shown = visitor.get(page.path, follow=False)
            assert shown.status == 303
            assert shown.headers["Location"].startswith("/console/sign-in?")
        else:
            assert visitor.post(page.path, {}, follow=False).status == 401


@pytest.mark.parametrize("page", GUARDED, ids=ids)
def test_a_page_is_for_its_scopes(
    console: Visitor, reader: Visitor, superadmin: Visitor, page: Page
) -> None:
    for scope, visitor in (("admin", console), ("read", reader), ("superadmin", superadmin)):
        if scope not in (page.scopes or ()):
            assert visitor.send(page.method, page.path, None, {}).status == 403


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.method == "POST"], ids=lambda page: page.path
)
def test_a_form_of_another_origin_or_session_is_refused(
    api: ControlApi, console: Visitor, page: Page
) -> None:
    own, foreign = token_of(console), token_of(Visitor(api).sign_in(api.admin_key))
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        body = urlencode({"csrf": own}).encode()
        assert console.send("POST", page.path, body, headers).status == 403
    for token in ("", foreign, own[:-1], own + "0", "ÿ"):
        assert console.post(page.path, {"csrf": token}).status == 403
    assert is_signed_in(console)


def test_the_cookie_is_out_of_reach(api: ControlApi) -> None:
    shown = Visitor(api).post("/console/sign-in", {"key": api.admin_key}, follow=False)
    (cookie,) = shown.headers.get_all("Set-Cookie", [])
    assert cookie.startswith(f"{COOKIE}=default.")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    by_tls = session_cookie("value", secure=True)
    assert by_tls == "__Host-sluice_console=value; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert presented_cookie([f"{COOKIE}=a"], secure=True) is None
    # Two cookies of one name: another host of the domain has set one.
    assert presented_cookie([f"{COOKIE}=a; {COOKIE}=b"], secure=False) is None
    assert presented_cookie([f"{COOKIE}=a", f"{COOKIE}=a"], secure=False) is None


def test_a_session_ends_when_signed_out_and_the_old_one_when_signing_in_again(
    api: ControlApi,
) -> None:
    visitor = Visitor(api).sign_in(api.admin_key)
    first = dict(visitor.cookies)
    visitor.post("/console/sign-in", {"key": api.admin_key, "csrf": token_of(visitor)})
    assert visitor.cookies != first
    thief = Visitor(api)
    thief.cookies = first
    assert not is_signed_in(thief)
    thief.cookies = dict(visitor.cookies)
    assert visitor.post("/console/sign-out", {"csrf": token_of(visitor)}).status == 200
    assert not is_signed_in(thief)


def test_a_session_ends_with_its_key(api: ControlApi) -> None:
    made = api.admin("POST", "/v1/keys", {"name": "short", "scope": "read"})
    visitor = Visitor(api).sign_in(made["key"])
    assert is_signed_in(visitor)
    api.admin("DELETE", f"/v1/keys/{made['key_id']}")
    assert not is_signed_in(visitor)


def test_a_session_ends_when_its_key_is_rotated(api: ControlApi) -> None:
    made = api.admin("POST", "/v1/keys", {"name": "short", "scope": "read"})
    visitor = Visitor(api).sign_in(made["key"])
    assert is_signed_in(visitor)
    api.admin("POST", f"/v1/keys/{made['key_id']}/rotate")
    assert not is_signed_in(visitor)


def test_a_session_ends_when_its_key_expires(fresh: ControlApi) -> None:
    key = fresh.new_key("read", expires_days=1)
    fresh.time.ahead += 86_000
    # Within the session's own hours, so that the key alone ends it.
    visitor = Visitor(fresh).sign_in(key)
    assert is_signed_in(visitor)
    fresh.time.ahead += 500
    assert not is_signed_in(visitor)


def test_a_session_ends_with_its_tenant(api: ControlApi) -> None:
    made = api.call("POST", "/v1/admin/tenants", {"name": "brief"}, key=SUPERADMIN).body
    visitor = Visitor(api).sign_in(made["admin_key"])
    assert is_signed_in(visitor)
    path = f"/v1/admin/tenants/{made['tenant_id']}"
    assert api.call("DELETE", path, key=SUPERADMIN).status < 300
    assert not is_signed_in(visitor)


@pytest.mark.parametrize("hours", [1.1, 13.0, -1.0], ids=["idle", "absolute", "set back"])
def test_a_session_ends_after_its_time_and_does_not_return(api: ControlApi, hours: float) -> None:
    visitor = Visitor(api).sign_in(api.admin_key)
    api.time.ahead += hours * 3600
    try:
        assert not is_signed_in(visitor)
    finally:
        api.time.ahead -= hours * 3600
    assert is_signed_in(visitor) == (hours < 0)


def test_another_session_is_ended_by_an_admin_and_not_by_a_reader(
    api: ControlApi, console: Visitor, reader: Visitor
) -> None:
    other = Visitor(api).sign_in(api.new_key("read"))
    newest = api.admin("GET", "/v1/console/sessions?limit=1")[0]["session_id"]
    body = {"session_id": newest}
    path = "/console/account/end-session"
    assert reader.post(path, {**body, "csrf": token_of(reader)}).status == 404
    assert is_signed_in(other)
    assert "has ended" in console.post(path, {**body, "csrf": token_of(console)}).text
    assert not is_signed_in(other)


def test_the_superadmin_s_sessions_are_of_no_tenant(api: ControlApi, superadmin: Visitor) -> None:
    listed = api.call("GET", "/v1/console/sessions", key=SUPERADMIN).body
    assert {each["scope"] for each in listed} == {"superadmin"}
    scopes = {each["scope"] for each in api.admin("GET", "/v1/console/sessions?limit=1000")}
    assert "superadmin" not in scopes
    assert is_signed_in(superadmin)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.js")), ids=lambda path: path.name)
def test_no_script_sends_a_form(script: Path) -> None:
    """A person does: a link on another site must not change who they are."""
    text = script.read_text()
    assert "submit" not in text.lower()
    assert text.count(".click(") == (script.name == "shortcuts.js")  # which follows a link


def test_a_link_signs_in_once(api: ControlApi) -> None:
    url = api.admin("POST", "/v1/console/sign-in-links")["url"]
    path, _, code = url.partition("#code=")
    assert path == "/console/sign-in"
    assert Visitor(api).post("/console/sign-in/link", {"code": code}).status == 200
    again = Visitor(api).post("/console/sign-in/link", {"code": code})
    assert again.status == 403
    assert "was used already" in again.text
    # It says how to get another one.
    (command,) = again.main.find_all("pre")
    assert command.text.endswith('"$SLUICE/v1/console/sign-in-links"')
    assert not Visitor(api).get("/console/sign-in").main.find_all("pre")


def test_a_link_that_another_browser_uses_meanwhile_is_refused(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read it before either has used it: the write decides."""
    code = api.admin("POST", "/v1/console/sign-in-links")["url"].partition("#code=")[2]
    find_link = queries.find_link

    async def before_its_use(*read: Any) -> SignInLink | None:
        link = await find_link(*read)
        return None if link is None else replace(link, used_at=None)

    monkeypatch.setattr(queries, "find_link", before_its_use)
    first, second = Visitor(api), Visitor(api)
    assert first.post("/console/sign-in/link", {"code": code}, follow=False).status == 303
    assert second.post("/console/sign-in/link", {"code": code}, follow=False).status == 403
    assert (bool(first.cookies), bool(second.cookies)) == (True, False)


def test_a_sign_in_is_logged_without_its_secret(api: ControlApi) -> None:
    visitor = Visitor(api).sign_in(api.admin_key)
    secret = visitor.cookies[COOKIE].partition(".")[2]
    visitor.post("/console/sign-out", {"csrf": token_of(visitor)})
    changes = api.call("GET", "/v1/audit/changes?limit=2")
    assert b"signed_in" in changes.raw
    assert b"signed_out" in changes.raw
    for said in (changes.raw, api.call("GET", "/metrics", key=None).raw):
        assert secret.encode() not in said
        assert api.admin_key.encode() not in said


def test_keys_of_programs_do_not_sign_in(api: ControlApi) -> None:
    for scope in ("evaluate", "sidecar"):
        visitor = Visitor(api)
        assert visitor.post("/console/sign-in", {"key": api.new_key(scope)}).status == 403
        assert not visitor.cookies


def test_a_link_from_elsewhere_opens_through_a_page_of_ours(console: Visitor) -> None:
    stranger = Visitor(console.api)
    shown = stranger.get("/console/agents?status=approved", Sec_Fetch_Site="cross-site")
    target = shown.page.find("meta", http_equiv="refresh").attributes["content"]
    assert target == "0; url=/console/sign-in?to=%2Fconsole%2Fagents%3Fstatus%3Dapproved"
    # Now the browser sends the cookie.
    assert console.get(target.partition("url=")[2]).heading == "Agents"


@pytest.mark.parametrize(
    "to",
    [
        "//evil.example",
        "https://evil.example",
        "/console//evil.example",
        "/console/../docs",
        "/console\\evil",
        "/console/\nx",
        "/consoles",
        "/console/sign-in?to=/console/sign-in",
        "/console/%2e%2e/docs",
        "/console/.%2E/v1/audit/events",
        "/console/",
        "/console/sign-out",
        "/console/oidc?realm=ten_of_another_s_choice",
        "/console/oidc/sign-out",
        "",
    ],
)
def test_the_address_after_sign_in_is_one_of_our_own_pages(to: str) -> None:
    assert own_page(to) == "/console"


def test_every_page_can_be_the_address_after_sign_in() -> None:
    pages = {page.path for page in GUARDED if page.method == "GET"}
    assert len(pages) > 5
    for path in pages:
        target = f"{path}?status=approved&q=%C3%A9&x=a/../b"
        assert own_page(target) == target


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"key=%ff", "application/x-www-form-urlencoded"),
        (b"key=%00", "application/x-www-form-urlencoded"),
        (b"key=\xff", "application/x-www-form-urlencoded"),
        (b"key=a", "application/x-www-form-urlencoded; charset=utf-16"),
        (b"key=a", "multipart/form-data; boundary=x"),
        (b"key=a", "application/json"),
        (urlencode([("key", "a")] * 600).encode(), "application/x-www-form-urlencoded"),
    ],
    ids=range(7),
)
def test_a_malformed_form_is_refused_with_400(
    api: ControlApi, body: bytes, content_type: str
) -> None:
    headers = {"Content_Type": content_type}
    assert Visitor(api).send("POST", "/console/sign-in", body, headers).status == 400


def test_a_head_request_shows_no_body_and_begins_nothing(api: ControlApi, console: Visitor) -> None:
    assert Visitor(api).send("HEAD", "/console/account", None, {}).status == 303
    shown = console.send("HEAD", "/console/account", None, {})
    assert (shown.status, shown.raw) == (200, b"")
