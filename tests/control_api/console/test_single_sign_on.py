"""Signing in to the console at a certified identity provider, from the first click on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.control_api.console.company import ATTEMPT, AUDITORS, COOKIE, GROUPS, Company, founded
from tests.control_api.console.reader import Visitor
from tests.control_api.signin.real_provider import SECRET
from tests.support.control_api import ControlApi, running_control_api
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    with founded(tmp_path_factory.mktemp("company")) as made:
        yield made


def is_signed_in(visitor: Visitor) -> bool:
    return visitor.get("/console/account", follow=False).status == 200


def changes(api: ControlApi, action: str) -> list[dict[str, Any]]:
    """The newest first."""
    found: list[dict[str, Any]] = api.admin("GET", f"/v1/audit/changes?limit=50&action={action}")
    return found


def test_a_person_signs_in_and_their_actions_are_logged_as_theirs(company: Company) -> None:
    sign_in = Visitor(company.api).get("/console/sign-in?to=/console/agents")
    link = sign_in.page.find("a", class_="button").attributes["href"]
    assert link == "/console/oidc?to=%2Fconsole%2Fagents"
    visitor, shown = company.arrive("ann", "/console/agents")
    # A page of our own goes on: after a redirect from elsewhere a Strict cookie stays at home.
    assert shown.status == 200
    assert shown.page.find("meta", http_equiv="refresh").attributes["content"] == (
        "0; url=/console/agents"
    )
    (cookie,) = shown.headers.get_all("Set-Cookie", [])
    assert cookie.startswith(f"{COOKIE}=default.")
    assert cookie.endswith("SameSite=Strict")
    account = visitor.get("/console/account")
    (name,) = set(re.findall(r"oidc:ann@example\.com~[0-9a-f]{12}", account.text))
    assert "sluice-admins" in account.text
    assert visitor.get("/console/agents").status == 200
    entry = changes(company.api, "signed_in")[0]
    assert (entry["actor"], entry["after"]["person"]) == (name, name)
    assert (entry["after"]["issuer"], entry["after"]["subject"]) == (company.provider.issuer, "ann")
    assert entry["after"]["granted_by"] == "sluice-admins"
    visitor.submit(account, "/console/sign-out")
    ended = changes(company.api, "signed_out")[0]
    assert (ended["actor"], ended["object_id"]) == (name, entry["object_id"])
    assert not is_signed_in(visitor)


def test_the_strongest_scope_of_the_groups_counts(company: Company) -> None:
    for person, scope in (("ben", "read"), ("cleo", "admin"), ("finn", "read")):
        account = company.sign_in(person).get("/console/account")
        assert account.main.find("dl").find_all("dd")[1].text == scope
    # An address that the provider has not verified is not shown as a name.
    assert "ben@example.com" not in company.sign_in("ben").get("/console/account").text


def test_a_person_may_be_the_superadmin_and_has_a_name_of_their_own(company: Company) -> None:
    visitor = company.sign_in("eve")
    account = visitor.get("/console/account")
    assert "all tenants" in account.text
    assert re.search(r"oidc:superadmin~[0-9a-f]{12}", account.text)
    assert visitor.get("/console/agents").status == 403


def test_a_person_without_a_mapped_group_is_refused_with_a_message(company: Company) -> None:
    for person, groups in (("dora", "`everyone`"), ("gil", "none")):
        visitor, shown = company.arrive(person)
        assert shown.status == 403
        assert "none of your groups may use this console" in shown.text
        assert f"Your groups: {groups}" in shown.text
        assert COOKIE not in visitor.cookies
        assert "Sign in with single sign-on" in shown.text


def test_a_person_of_several_tenants_chooses_one_and_changes_over(company: Company) -> None:
    acme = company.api.admin("POST", "/v1/admin/tenants", {"name": "Acme"})["tenant_id"]
    other = GROUPS.replace("operators=superadmin", "operators=admin@default")
    company.restart(SLUICE_OIDC_GROUPS=f"{other},acme-admins=admin@{acme}")
    ann, eve = company.sign_in("ann"), company.sign_in("eve")
    visitor, shown = company.arrive("finn", "/console/agents")
    assert shown.heading == "Choose a tenant"
    assert COOKIE not in visitor.cookies
    choices = {a.text: a.attributes["href"] for a in shown.main.find_all("a")}
    assert choices.keys() == {"default", acme}
    # The provider is asked again, and knows the person already.
    for tenant, scope in ((acme, "admin"), ("default", "read")):
        shown = visitor.get(company.answer(visitor, "finn", start=choices[tenant]))
        assert "url=/console/agents" in shown.raw.decode()
        facts = visitor.get("/console/account").main.find("dl").text
        assert f"Tenant {tenant}" in facts
        assert f"Scope {scope}" in facts
    assert visitor.get("/console/account").main.find_all("a", href="/console/oidc")
    # A link on another site may not change the tenant behind the visitor's back.
    led = visitor.get(choices[acme], follow=False, Sec_Fetch_Site="cross-site")
    assert led.headers["Location"] == "/console/sign-in?to=%2Fconsole%2Fagents"
    # A tenant that the groups don't give is not to be had by asking for it.
    start = "/console/oidc?realm=superadmin"
    shown = visitor.get(company.answer(visitor, "finn", start=start))
    assert shown.heading == "Choose a tenant"
    # A mapping that is taken away or gives another scope ends the sessions that it gave.
    visitor.get(company.answer(visitor, "finn", start=choices[acme]))
    assert is_signed_in(visitor)
    company.restart(SLUICE_OIDC_GROUPS=GROUPS)
    assert [is_signed_in(each) for each in (visitor, eve, ann)] == [False, False, True]


@pytest.mark.deep(stands_in="test_a_person_of_several_tenants_chooses_one_and_changes_over")
def test_sessions_end_when_the_mapping_that_gave_them_is_removed(company: Company) -> None:
    ann, ben, eve = (company.sign_in(person) for person in ("ann", "ben", "eve"))
    before = company.api.environ["SLUICE_OIDC_GROUPS"]
    company.restart(SLUICE_OIDC_GROUPS=AUDITORS)
    assert not is_signed_in(ann)
    assert is_signed_in(ben)
    assert not is_signed_in(eve)
    # Neither may the scope change under a session that was begun for less.
    company.restart(SLUICE_OIDC_GROUPS="sluice-auditors=admin@default")
    assert not is_signed_in(ben)
    company.restart(SLUICE_OIDC_GROUPS=before)
    kept = dict(company.api.environ)
    for name in [each for each in kept if "_OIDC_" in each]:
        del company.api.environ[name]
    company.restart()
    assert not is_signed_in(ann)
    shown = Visitor(company.api).get("/console/oidc")
    assert shown.status == 404
    assert "single sign-on" not in shown.text
    company.api.environ = kept
    company.restart()
    assert is_signed_in(ann)


def test_an_answer_is_taken_once_and_from_its_own_browser_only(company: Company) -> None:
    victim, thief = Visitor(company.api), Visitor(company.api)
    answer = company.answer(victim, "ann")
    # Of another browser, which has none or another attempt.
    for _ in range(2):
        shown = thief.get(answer)
        assert shown.status == 403
        assert "does not belong to a sign-in that this browser began" in shown.text
        assert COOKIE not in thief.cookies
        thief.get("/console/oidc", follow=False)
    assert victim.get(answer).status == 200
    replayed = victim.get(answer)
    assert replayed.status == 403
    assert ATTEMPT not in victim.cookies


def test_the_provider_s_messages_are_shown_as_text(company: Company) -> None:
    visitor = Visitor(company.api)
    state = re.search(
        r"state=([^&]+)", visitor.get("/console/oidc", follow=False).headers["Location"]
    )
    assert state
    query = f"state={state[1]}&iss={company.provider.issuer}&error=access_denied"
    shown = visitor.get(f"/console/oidc/callback?{query}&error_description=%3Cscript%3Ealert(1)")
    assert shown.status == 403
    assert not shown.main.find_all("script")
    assert "access_denied`: <script>alert(1)" in shown.text
    # Without the state, not even as text: anyone can write such a link.
    shown = Visitor(company.api).get("/console/oidc/callback?error=x&error_description=call+us")
    assert "call us" not in shown.text
    assert visitor.get("/console/oidc/callback?state=a&state=b").status == 422


def test_the_attempt_s_cookie_is_short_lived_and_returns_from_the_provider(
    company: Company,
) -> None:
    began = Visitor(company.api).get("/console/oidc?to=//evil.example", follow=False)
    (cookie,) = began.headers.get_all("Set-Cookie", [])
    assert cookie.startswith(f"{ATTEMPT}=")
    assert cookie.endswith("; Max-Age=600; Path=/; HttpOnly; SameSite=Lax")
    visitor, shown = company.arrive("ann", "//evil.example/console")
    assert 'url=/console"' in shown.raw.decode()
    assert visitor.cookies


def test_keys_still_sign_in_if_the_provider_was_never_reachable(tmp_path: Path) -> None:
    secret = tmp_path / "client-secret"
    secret.write_text(SECRET + "\n")
    with running_control_api(
        tmp_path,
        SLUICE_CONSOLE_URL="http://127.0.0.1",
        SLUICE_OIDC_ISSUER=f"http://127.0.0.1:{free_port()}",
        SLUICE_OIDC_CLIENT_ID="sluice",
        SLUICE_OIDC_CLIENT_SECRET_FILE=str(secret),
        SLUICE_OIDC_GROUPS=GROUPS,
    ) as api:
        shown = Visitor(api).get("/console/oidc")
        assert shown.status == 503
        assert "the identity provider can't be used" in shown.text
        assert shown.main.find_all("input", name="key")
        assert api.call("GET", "/v1/keys").status == 200


@pytest.mark.deep(stands_in="test_keys_still_sign_in_if_the_provider_was_never_reachable")
def test_an_unreachable_provider_stops_neither_the_start_nor_keys(company: Company) -> None:
    company.provider.stop()
    company.restart()
    try:
        shown = Visitor(company.api).get("/console/oidc")
        assert shown.status == 503
        assert "the identity provider can't be used" in shown.text
        assert shown.main.find_all("input", name="key")
        assert is_signed_in(Visitor(company.api).sign_in(company.api.admin_key))
    finally:
        company.provider.start()
        # It would ask again after some seconds.
        company.restart()


def test_signing_out_offers_the_provider_s_sign_out(company: Company) -> None:
    visitor = company.sign_in("ann")
    out = visitor.submit(visitor.get("/console/account"), "/console/sign-out")
    link = out.main.find("a", href="/console/oidc/sign-out")
    sent = visitor.get(link.attributes["href"], follow=False)
    assert sent.headers["Location"].startswith(f"{company.provider.issuer}/session/end?")
    assert urlsplit(sent.headers["Location"]).query.endswith("%2Fconsole%2Fsign-in")


def test_no_secret_of_a_sign_in_is_written_down(
    company: Company, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    visitor = Visitor(company.api)
    answer = company.answer(visitor, "ann")
    attempt = visitor.cookies[ATTEMPT]
    code = re.search(r"code=([^&]+)", answer)
    assert code
    visitor.get(answer)
    visitor.get(answer)  # refused, which is logged
    session = visitor.cookies.get(COOKIE, "x" * 9)
    metrics = company.api.call("GET", "/metrics").raw.decode()
    assert "console_end_single_sign_on" in metrics
    trail = company.api.call("GET", "/v1/audit/changes?limit=50").raw.decode()
    said = caplog.text + metrics + trail
    assert "refused (state)" in said
    for secret in (code[1], attempt.partition(".")[0], SECRET, session):
        assert secret not in said
