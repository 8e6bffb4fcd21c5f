"""What every page of the console has: its frame, its headers, its errors."""

from __future__ import annotations

from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi


def test_a_visitor_signs_in_and_sees_the_agents(api: ControlApi, console: Visitor) -> None:
    api.approved("agt-first")
    shown = console.get("/console/agents")
    assert shown.status == 200
    assert shown.heading == "Agents"
    assert "agt-first" in shown.text
    assert shown.page.find("a", aria_current="page").text == "Agents"


def test_a_page_without_a_sign_in_leads_to_it_and_back(api: ControlApi) -> None:
    visitor = Visitor(api)
    shown = visitor.get("/console/agents?status=approved")
    assert shown.heading == "Sign in to Sluice"
    signed_in = visitor.submit(shown, "/console/sign-in", key=api.admin_key)
    assert signed_in.address == "/console/agents?status=approved"
    assert signed_in.heading == "Agents"


def test_a_wrong_key_is_refused_and_begins_no_session(api: ControlApi) -> None:
    visitor = Visitor(api)
    shown = visitor.post("/console/sign-in", {"key": "slc_wrong"})
    assert shown.status == 403
    assert "the API key is not valid" in shown.text
    assert not visitor.cookies


def test_every_answer_forbids_foreign_content_and_framing(
    api: ControlApi, console: Visitor
) -> None:
    for address in ("/console/agents", "/console/nothing", "/console/sign-in"):
        policy = console.get(address).headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_an_error_is_shown_with_the_navigation(console: Visitor, reader: Visitor) -> None:
    for shown, status in (
        (console.get("/console/nothing"), 404),
        (console.get("/console/agent?id=unknown"), 404),
        (console.post("/console/sign-out", {}), 403),
        (reader.get("/console/agents/new"), 403),
    ):
        assert shown.status == status
        assert "Agents" in shown.page.find("nav").text
    assert not Visitor(console.api).get("/console/nothing").page.find_all("nav")


def test_a_form_without_its_token_is_refused(console: Visitor) -> None:
    shown = console.post("/console/sign-out", {})
    assert shown.status == 403
    assert console.get("/console/agents").heading == "Agents"


def test_a_form_from_another_site_is_refused(console: Visitor) -> None:
    token = console.get("/console/agents").page.find("input", name="csrf").attributes["value"]
    shown = console.post("/console/sign-out", {"csrf": token}, Sec_Fetch_Site="cross-site")
    assert shown.status == 403
    assert console.get("/console/agents").heading == "Agents"


def test_the_files_of_a_page_are_cached_forever(console: Visitor) -> None:
    page = console.get("/console/agents").page
    style = page.find("link", rel="stylesheet").attributes["href"]
    shown = console.get(style)
    assert shown.status == 200
    assert shown.headers.get_all("Cache-Control") == ["public, max-age=31536000, immutable"]
    assert console.get("/console/static/0000/console.css").status == 404
