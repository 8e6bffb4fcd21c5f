"""What people come to the console for, from end to end: the console is theirs, the API the
agent's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from deploy.commands.verify.__main__ import main as verifier
from tests.control_api.console.browser.damage import rename_user, turn_into_permission
from tests.control_api.console.browser.visitors import sign_in
from tests.support.browser_tabs import Tabs
from tests.support.browsing import watching
from tests.support.control_api import ControlApi
from tests.support.waiting import until


async def _tab_to(tab: Page, name: str) -> None:
    """By the Tab key alone, to the control with this text or label."""
    for _ in range(200):
        await tab.keyboard.press("Tab")
        words = await tab.evaluate(
            """() => { const e = document.activeElement;
                 const texts = [e.textContent, e.labels?.[0]?.textContent, e.ariaLabel];
                 return texts.filter(Boolean).map(each => each.trim()); }"""
        )
        if name in words:
            return
    raise AssertionError(f"Tab does not lead to `{name}` on {tab.url}")


async def _press(tab: Page, name: str) -> None:
    """Goes to a link or button by Tab, presses Enter, and waits for the page that follows."""
    await _tab_to(tab, name)
    async with tab.expect_navigation():
        await tab.keyboard.press("Enter")


async def _asks(api: ControlApi, **asked: Any) -> dict[str, Any]:
    """The agent asks by its own key."""
    answer: dict[str, Any] = await asyncio.to_thread(api.evaluate, **asked)
    return answer


def _signed(api: ControlApi, event_id: str) -> None:
    path = f"/v1/audit/proof/{event_id}"
    until("a checkpoint", lambda: api.call("GET", path).status == 200)


@pytest.mark.deep(stands_in="test_a_tampered_row_turns_the_page_red_and_the_overview_names_it")
async def test_an_auditor_finds_a_decision_and_verifies_it_here_and_offline(
    fresh: ControlApi, tabs: Tabs, tmp_path: Path
) -> None:
    """By the keyboard alone."""
    asked = {user: (await _asks(fresh, user_id=user))["event_id"] for user in ("ann", "zoe", "bo")}
    await asyncio.to_thread(_signed, fresh, asked["bo"])
    auditor = fresh.new_key("read")
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, auditor)
        await _press(tab, "Decisions")
        await tab.wait_for_url("**/console/decisions")
        await _tab_to(tab, "User")
        await tab.keyboard.type("zoe")
        await tab.keyboard.press("Enter")
        await tab.wait_for_url("**user_id=zoe**")
        row = tab.locator("tbody tr")
        await expect(row).to_have_count(1)
        await _press(tab, (await row.locator("a").first.text_content() or "").strip())
        await tab.wait_for_url(f"**/console/decision?id={asked['zoe']}")
        await expect(tab.locator("#verdict-title")).to_have_text("Verified by this browser")
        await expect(tab.locator("#steps")).to_contain_text("signed by")

        await _tab_to(tab, "Download the evidence")
        async with tab.expect_download() as begun:
            await tab.keyboard.press("Enter")
        file = tmp_path / "evidence.json"
        await (await begun.value).save_as(file)
    # The key comes from elsewhere: here, from the folder of the service.
    key = fresh.admin("GET", "/v1/audit/log-keys")["log_key"]
    done = await asyncio.to_thread(_verify, file, key)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "signed: only who has the log's key" in done.stdout
    file.write_text(file.read_text().replace("zoe", "joe"))
    assert (await asyncio.to_thread(_verify, file, key)).returncode == 1


def _verify(file: Path, key: str) -> subprocess.CompletedProcess[str]:
    """`sluice verify`, as a process of its own, without the service."""
    command = [sys.executable, "-m", "deploy.commands.verify", str(file), "--key", key]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


async def _evidence_holds(api: ControlApi, tab: Page, file: Path) -> None:
    """The evidence that the page offers is verified without the service."""
    async with tab.expect_download() as begun:
        await tab.get_by_role("link", name="Download the evidence").click()
    await (await begun.value).save_as(file)
    key = api.admin("GET", "/v1/audit/log-keys")["log_key"]
    assert verifier([str(file), "--key", key]) == 0
    file.write_text(file.read_text().replace("payroll", "payrise"))
    assert verifier([str(file), "--key", key]) == 1


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_sign_in.py::test_no_script_sends_a_form"
)
async def test_a_link_signs_in_only_by_a_click(fresh: ControlApi, tabs: Tabs) -> None:
    link = await asyncio.to_thread(fresh.admin, "POST", "/v1/console/sign-in-links")
    async with watching(tabs, fresh.console) as watched:
        tab, posts = await watched.page(), list[str]()
        tab.on("request", lambda sent: posts.append(sent.url) if sent.method == "POST" else None)
        await tab.goto(str(link["url"]))
        button = tab.get_by_role("button", name="Sign in with the link")
        await expect(button).to_be_focused()
        # A form that the page had sent would have been sent before this.
        assert await tab.evaluate("fetch('/console/sign-in').then(told => told.status)") == 200
        assert (posts, "code" in tab.url) == ([], False)
        await button.click()
        await tab.wait_for_url("**/console")
        await expect(tab.locator("main")).to_be_visible()


async def test_a_tampered_row_turns_the_page_red_and_the_overview_names_it(
    fresh: ControlApi, tabs: Tabs, tmp_path: Path
) -> None:
    event_id = (await _asks(fresh, source_id="payroll"))["event_id"]
    later = (await _asks(fresh))["event_id"]
    await asyncio.to_thread(_signed, fresh, later)
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, fresh.admin_key)
        await tab.goto("/console/decisions?source_id=payroll")
        await tab.locator("tbody tr a").first.click()
        await tab.wait_for_url(f"**/console/decision?id={event_id}")
        verdict = tab.locator("#verdict")
        await expect(verdict).to_contain_text("Verified by this browser")
        await _evidence_holds(fresh, tab, tmp_path / "evidence.json")
        seq = await tab.locator("[data-field=seq]").text_content()

        # The service refuses the proof too, which the browser's console notes.
        watched.faults.expect(f"/console/decision/proof?id={event_id}")
        # Someone with the database's password turns the denial into a permission.
        await asyncio.to_thread(turn_into_permission, fresh, event_id)
        await tab.reload()
        await expect(tab.locator("#verdict.bad")).to_contain_text("FAILED")
        await expect(verdict).to_contain_text(f"Event {event_id}, entry {seq}")
        await tab.goto("/console")
        told = tab.locator("[data-verified-log].bad")
        await expect(told).to_contain_text(event_id)
        await told.get_by_role("link", name="Look at it").click()
        await tab.wait_for_url(f"**/console/decision?id={event_id}")
        # The others are what they were.
        await tab.goto(f"/console/decision?id={later}")
        await expect(verdict).to_contain_text("Verified by this browser")
        # A name beside the entry, in place of the one that was hashed, is noticed too.
        await asyncio.to_thread(rename_user, fresh, later)
        watched.faults.expect("")
        await tab.reload()
        told = tab.locator("main .notice.bad").first
        await expect(told).to_contain_text("FAILED")
        await expect(told).to_contain_text(later)


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_agents.py::test_an_unknown_agent_is_listed_until_it_is_registered_and_reads_once_approved"
)
async def test_an_unknown_agent_is_approved_reads_is_suspended_and_denied(
    fresh: ControlApi, tabs: Tabs
) -> None:
    """The person uses the keyboard alone."""
    asked = {"agent_id": "agt-newcomer", "agent_role": "support"}
    denied = await _asks(fresh, **asked)
    assert (denied["decision"], denied["policy_name"]) == ("DENY", "agent_not_registered")
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, fresh.admin_key)
        await _press(tab, "Agents")
        await expect(tab.get_by_role("row", name="agt-newcomer")).to_contain_text("handbook")
        await _press(tab, "Register agt-newcomer")
        await expect(tab.get_by_label("Id", exact=True)).to_have_value("agt-newcomer")
        await _press(tab, "Register as a draft")
        await expect(tab.get_by_role("heading", level=1)).to_contain_text("draft")
        # What it would be able to read is there to be looked at before anyone decides.
        await expect(tab.locator("[aria-labelledby=may-read]")).to_contain_text("handbook")
        assert (await _asks(fresh, **asked))["decision"] == "DENY"

        await _decide(tab, "Approve", "approved", "Ann asked for it")
        allowed = await _asks(fresh, **asked)
        assert allowed["decision"] == "ALLOW"
        await _press(tab, "Its decisions")
        await tab.wait_for_url("**/console/decisions?agent_id=agt-newcomer")
        badges = tab.locator("tbody .badge")
        await expect(badges).to_have_text(["ALLOW", "DENY", "DENY"])

        await tab.goto("/console/agent?id=agt-newcomer")
        await _decide(tab, "Suspend", "suspended", "It reads at night")
        denied = await _asks(fresh, **asked)
        assert (denied["decision"], denied["policy_name"]) == ("DENY", "agent_not_approved")
        await _press(tab, "What was changed")
        history = tab.locator("main")
        await expect(history).to_contain_text("It reads at night")
        await expect(history).to_contain_text("Ann asked for it")


async def _decide(tab: Page, title: str, status: str, reason: str) -> None:
    """Opens the action, gives the reason and sends it."""
    await _tab_to(tab, title)
    await tab.keyboard.press("Enter")
    await tab.keyboard.press("Tab")
    await tab.keyboard.type(reason)
    await tab.keyboard.press("Tab")
    await tab.keyboard.press("Enter")
    await tab.wait_for_url(f"**done={status}")
    await expect(tab.get_by_role("heading", level=1)).to_contain_text(status)


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_candidates.py::test_a_candidate_that_a_guardrail_refuses_is_promoted_once_corrected"
)
async def test_a_policy_that_is_too_wide_is_refused_and_promoted_once_corrected(
    fresh: ControlApi, tabs: Tabs
) -> None:
    """By the keyboard alone."""
    never = {"sources": ["payroll"]}
    fresh.admin("POST", "/v1/guardrails", {"name": "payroll-is-closed", "never": never})
    policy = {
        "name": "buyers-read",
        "agent_role": "buyer",
        "allowed_sources": ["products"],
        "denied_sources": [],
        "max_sensitivity": "low",
    }
    fresh.admin("POST", "/v1/policies", policy)
    catalogue = {"agent_role": "buyer", "source_id": "catalogue"}
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, fresh.admin_key)
        await _press(tab, "Policies")
        await _press(tab, "buyers-read")
        await _press(tab, "Edit")
        await _retype(tab, "products", "products, payroll")
        await _press(tab, "Review the change")
        main = tab.locator("main")
        await expect(main).to_contain_text("widens access")
        await expect(main).to_contain_text("refused by a guardrail")
        await expect(main).to_contain_text("payroll-is-closed")
        await expect(tab.get_by_role("button", name="Save")).to_have_count(0)

        await _retype(tab, "payroll", "catalogue")
        await _press(tab, "Review again")
        await expect(main).to_contain_text("guardrails hold")
        await expect(tab.locator("[aria-labelledby=allowed]")).to_contain_text("catalogue")
        assert (await _asks(fresh, **catalogue))["decision"] == "DENY"

        await _press(tab, "Try as a candidate")
        await _tab_to(tab, "Name")
        await tab.keyboard.type("wider")
        await _press(tab, "Create the candidate")
        await tab.wait_for_url("**/console/policies/candidate?id=wider**")
        # It changes no decision, and counts what it would have changed.
        assert (await _asks(fresh, **catalogue))["decision"] == "DENY"
        await tab.reload()
        await expect(tab.locator(".figure.warn")).to_have_text("1Newly allowed")
        await _press(tab, "Review exactly what it changes, and promote")
        await _tab_to(tab, "I have read what it newly allows and denies")
        await tab.keyboard.press("Space")
        await _press(tab, "Promote the candidate")
        await expect(main).to_contain_text("in force now")
    assert (await _asks(fresh, **catalogue))["decision"] == "ALLOW"


async def _retype(tab: Page, old: str, new: str) -> None:
    """Another text in the policy's editor."""
    await _tab_to(tab, "Policy")
    text = str(await tab.evaluate("document.activeElement.value"))
    assert old in text
    await tab.keyboard.press("Control+A")
    await tab.keyboard.insert_text(text.replace(old, new))
