"""Where browsers see the console: by TLS, behind a proxy, or not at all. What a request says of
itself in `Host`, `Origin` and `X-Forwarded-…` is believed only where it may be."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from control_api.console.pages import PAGES
from control_api.console.sessions import FailedSignIns
from control_api.console.static import StaticFiles
from tests.control_api.console.reader import Shown, Visitor
from tests.support.certificates import authority
from tests.support.control_api import ControlApi, running_control_api
from tests.support.ports import free_port

PLAIN, HOST = "sluice_console", "__Host-sluice_console"
FORGED = {
    "Host": "evil.example",
    "X_Forwarded_Host": "evil.example",
    "X_Forwarded_Proto": "https",
    "X_Forwarded_For": "198.51.100.7",
    "Forwarded": "for=198.51.100.7;host=evil.example;proto=https",
}
PUBLIC = "https://sluice.example"
SIGN_IN = "/console/sign-in"


def is_signed_in(visitor: Visitor) -> bool:
    return visitor.get("/console/account", follow=False).status == 200


def sent(visitor: Visitor, path: str, form: dict[str, str], headers: dict[str, str]) -> Shown:
    """The answer to a form with these headers."""
    return visitor.send("POST", path, urlencode(form).encode(), headers)


def by_tls() -> dict[str, str]:
    """The settings of a service that ends TLS by itself."""
    pair = authority().issue("127.0.0.1")
    return {"SLUICE_TLS_CERTIFICATE": str(pair.certificate), "SLUICE_TLS_KEY": str(pair.key)}


def test_by_tls_the_cookie_is_for_tls_and_this_host_alone(tmp_path: Path) -> None:
    with running_control_api(tmp_path, **by_tls(), SLUICE_CONSOLE_URL=PUBLIC) as api:
        visitor = Visitor(api, authority().client())
        shown = visitor.post(SIGN_IN, {"key": api.admin_key}, follow=False)
        (cookie,) = shown.headers.get_all("Set-Cookie", [])
        assert cookie.startswith(f"{HOST}=default.")
        assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
        assert is_signed_in(visitor)
        # A cookie of the plain name may have been set by another host of the domain.
        other = Visitor(api, visitor.tls)
        other.cookies = {PLAIN: visitor.cookies[HOST]}
        assert not is_signed_in(other)
        account = visitor.get("/console/account")
        plain = {"Origin": visitor.origin.replace("https", "http")}
        token = account.page.find("input", name="csrf").attributes["value"]
        assert sent(visitor, "/console/sign-out", {"csrf": token}, plain).status == 403
        out = visitor.post("/console/sign-out", {"csrf": token}, follow=False)
        assert "Max-Age=0; Path=/; HttpOnly; SameSite=Strict; Secure" in out.headers["Set-Cookie"]
        assert not is_signed_in(visitor)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """A proxy ends TLS in front of it."""
    folder = tmp_path_factory.mktemp("proxied")
    with running_control_api(folder, SLUICE_CONSOLE_URL=PUBLIC + "/") as started:
        yield started


def test_behind_a_proxy_the_configured_address_counts(proxied: ControlApi) -> None:
    visitor = Visitor(proxied, host="sluice.example")
    form = {"key": proxied.admin_key}
    for origin in (
        f"http://127.0.0.1:{proxied.port}",
        "http://sluice.example",
        "https://sluice.example:8443",
        "null",
    ):
        assert visitor.post(SIGN_IN, form, Origin=origin).status == 403
        # Headers that anyone may send don't make it right.
        forged = {**FORGED, "Host": "sluice.example", "Origin": origin}
        assert sent(visitor, SIGN_IN, form, forged).status == 403
    assert sent(visitor, SIGN_IN, form, {**FORGED, "Origin": PUBLIC}).status == 403
    shown = sent(visitor, SIGN_IN, form, {**FORGED, "Host": "sluice.example", "Origin": PUBLIC})
    assert shown.status == 303
    assert shown.headers["Location"] == "/console"
    assert shown.headers["Set-Cookie"].startswith(f"{HOST}=default.")
    assert shown.headers["Set-Cookie"].endswith("; Secure")
    assert is_signed_in(visitor)
    link = proxied.admin("POST", "/v1/console/sign-in-links")["url"]
    assert link.startswith(f"{PUBLIC}/console/sign-in#code=")


def test_an_address_by_http_gets_a_cookie_that_works_there(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_CONSOLE_URL="http://sluice.example:8700") as api:
        visitor = Visitor(api, host="sluice.example:8700")
        form = {"key": api.admin_key}
        elsewhere = f"http://127.0.0.1:{api.port}"
        assert visitor.post(SIGN_IN, form, Origin=elsewhere).status == 403
        shown = visitor.post(SIGN_IN, form, follow=False)
        cookie = shown.headers["Set-Cookie"]
        assert cookie.startswith(f"{PLAIN}=default.")
        assert "Secure" not in cookie
        assert is_signed_in(visitor)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """Its settings say which name the console has."""
    url = "http://0123456789abcdef0123456789abcdef.localhost:8700"
    folder = tmp_path_factory.mktemp("given")
    with running_control_api(folder, SLUICE_CONSOLE_URL=url) as started:
        yield started


@pytest.mark.parametrize("name", ["given", "api"])
def test_a_console_has_one_name_and_hands_no_cookie_to_other_hosts(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Else any local server of 127.0.0.1, an agent's too, gets the cookie of its visitors."""
    api: ControlApi = request.getfixturevalue(name)
    own, form = Visitor(api), {"key": api.admin_key}
    host = own.host.partition(":")[0]
    assert host.endswith(".localhost")
    shown = own.post(SIGN_IN, form, follow=False)
    assert shown.status == 303
    assert "Domain" not in shown.headers["Set-Cookie"]
    assert is_signed_in(own)
    for other_host in (
        *("127.0.0.1", f"127.0.0.1:{api.port}", "localhost", "[::1]", "0.0.0.0"),
        *(f"x{host}", "rebound.example:8700", f"{host}.rebound.example"),
    ):
        other = Visitor(api, host=other_host)
        shown = other.post(SIGN_IN, form, follow=False)
        assert (shown.status, other.cookies) == (403, {})
        # Nor is a cookie of another host taken, and the name is told to no visitor of it.
        other.cookies = dict(own.cookies)
        page = other.get("/console/account")
        assert page.status == 403
        assert "console-host" in page.text
        assert host.encode() not in page.raw.replace(other_host.encode(), b"")
    # No page of another site learns the name from a link.
    assert own.get("/console/account").headers["Referrer-Policy"] == "same-origin"


def test_a_console_makes_its_own_name_once_and_keeps_it_from_other_users(tmp_path: Path) -> None:
    name = tmp_path / "data" / "console-host"
    port = free_port()
    with running_control_api(tmp_path, SLUICE_CONTROL_LISTEN=f"127.0.0.1:{port}") as api:
        assert stat.S_IMODE(name.stat().st_mode) == 0o600
        link = api.admin("POST", "/v1/console/sign-in-links")["url"]
        assert link.startswith(f"http://{name.read_text().strip()}:{port}/console/sign-in#code=")
        first = name.read_text()
        api.restart()
        assert name.read_text() == first
        assert Visitor(api).get(SIGN_IN).status == 200


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0"])
def test_by_tls_a_console_without_an_address_refuses_every_sign_in(
    tmp_path: Path, address: str
) -> None:
    settings = {**by_tls(), "SLUICE_CONTROL_LISTEN": address}
    with running_control_api(tmp_path, **settings) as api:
        for host in ("127.0.0.1", f"127.0.0.1:{api.port}", "localhost", "sluice.example"):
            visitor = Visitor(api, authority().client(), host)
            shown = visitor.get(SIGN_IN)
            assert shown.status == 403
            assert "SLUICE_CONSOLE_URL" in shown.text
            shown = visitor.post(SIGN_IN, {"key": api.admin_key}, follow=False)
            assert (shown.status, visitor.cookies) == (403, {})
        assert not (tmp_path / "data" / "console-host").exists()


def test_headers_that_claim_another_address_are_ignored(api: ControlApi) -> None:
    form = {"key": api.admin_key}
    shown = sent(Visitor(api), SIGN_IN, form, FORGED)
    assert shown.status == 403  # the form's origin is not the host that was asked
    for name in ("X_Forwarded_Host", "X_Forwarded_Proto", "X_Forwarded_For", "Forwarded"):
        given = {name: FORGED[name]}
        shown = sent(Visitor(api), SIGN_IN, form, given)
        assert shown.headers["Set-Cookie"].startswith(f"{PLAIN}=")
        assert shown.headers["Location"] == "/console"
        given["Origin"] = "https://evil.example"
        assert sent(Visitor(api), SIGN_IN, form, given).status == 403
    # No answer repeats the host, so that no cache or person is led there.
    plain = Visitor(api).post(SIGN_IN, form, follow=False).headers["Set-Cookie"]
    assert "Secure" not in plain
    there = Visitor(api)
    away = there.send("GET", "/console/account", None, {**FORGED, "Host": there.host})
    assert away.headers["Location"] == "/console/sign-in?to=%2Fconsole%2Faccount"
    assert b"evil.example" not in Visitor(api).send("GET", SIGN_IN, None, FORGED).raw


def test_a_rebound_name_sees_no_page_and_begins_no_session(api: ControlApi) -> None:
    visitor = Visitor(api).sign_in(api.admin_key)
    style = visitor.get("/console/account").page.find("link", rel="stylesheet").attributes["href"]
    for host in ("rebound.example", "rebound.example:8700", "127.0.0.1.rebound.example", "0.0.0.0"):
        for path in ("/console", "/console/account", SIGN_IN, style, "/console/nothing"):
            shown = visitor.send("GET", path, None, {"Host": host})
            assert shown.status == 403, (host, path)
            assert b"SLUICE_CONSOLE_URL" in shown.raw
        given = {"Host": host, "Origin": f"http://{host}"}
        shown = sent(Visitor(api), SIGN_IN, {"key": api.admin_key}, given)
        assert (shown.status, shown.headers.get_all("Set-Cookie", [])) == (403, [])
    name = visitor.host.partition(":")[0]
    for host in (name, f"{name.upper()}.:1", visitor.host):
        assert visitor.send("GET", SIGN_IN, None, {"Host": host}).status in (200, 303), host


def test_failures_are_counted_by_the_peer_and_not_by_a_header(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []

    async def note(_: FailedSignIns, address: str) -> None:
        addresses.append(address)

    monkeypatch.setattr(FailedSignIns, "wait", note)
    visitor = Visitor(api)
    for number in range(4):
        forged = {"X_Forwarded_For": f"198.51.100.{number}", "Forwarded": f"for=10.0.0.{number}"}
        assert sent(visitor, SIGN_IN, {"key": "wrong"}, forged).status == 403
        assert sent(visitor, f"{SIGN_IN}/link", {"code": "wrong"}, forged).status == 403
    assert addresses == ["127.0.0.1"] * 8
    visitor.sign_in(api.admin_key)
    assert len(addresses) == 8


def test_a_console_that_is_switched_off_has_no_page_and_takes_no_form(tmp_path: Path) -> None:
    with running_control_api(tmp_path, SLUICE_CONSOLE="0") as api:
        visitor = Visitor(api)
        paths = {page.path for page in PAGES} | {StaticFiles().address("console.css")}
        for path in sorted(paths | {"/console/", "/console/x"}):
            assert visitor.get(path).status == 404, path
        shown = visitor.post(SIGN_IN, {"key": api.admin_key}, follow=False)
        assert (shown.status, shown.headers.get_all("Set-Cookie", [])) == (404, [])
        assert api.call("POST", "/v1/console/sign-in-links").status == 404


@pytest.mark.deep(stands_in="test_a_console_that_is_switched_off_has_no_page_and_takes_no_form")
def test_a_console_that_is_switched_off_answers_nothing_and_its_cookie_opens_nothing(
    tmp_path: Path,
) -> None:
    api = ControlApi(tmp_path).start()
    try:
        visitor = Visitor(api).sign_in(api.admin_key)
        style = visitor.get("/console/account").page.find("link", rel="stylesheet")
        api.stop()
        api.environ["SLUICE_CONSOLE"] = "0"
        api.start()
        paths = {
            *(page.path for page in PAGES),
            style.attributes["href"],
            "/console/",
            "/console/x",
        }
        for path in sorted(paths):
            for method in ("GET", "HEAD", "POST", "DELETE"):
                shown = visitor.send(method, path, b"" if method == "POST" else None, {})
                assert shown.status == 404, (method, path)
                assert not shown.headers.get_all("Set-Cookie", [])
        cookie = {"Cookie": f"{PLAIN}={visitor.cookies[PLAIN]}"}
        for path in ("/v1/keys", "/v1/audit/events", "/v1/console/sessions"):
            assert api.call("GET", path, key=None, headers=cookie).status == 401
        assert api.call("POST", "/v1/console/sign-in-links").status == 404
    finally:
        api.stop()


def test_a_cookie_of_the_console_opens_no_route_of_the_api(api: ControlApi) -> None:
    visitor = Visitor(api).sign_in(api.admin_key)
    cookie = {"Cookie": f"{PLAIN}={visitor.cookies[PLAIN]}"}
    for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("GET", "/v1/audit/export")):
        assert api.call(method, path, key=None, headers=cookie).status == 401
    assert api.call("GET", "/v1/keys", key=visitor.cookies[PLAIN]).status == 403
