"""The audit page in a browser: it follows a verification, and turns red where one finds a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.control_api.console.browser.damage import turn_into_permission
from tests.control_api.console.browser.visitors import sign_in
from tests.support.browser_tabs import Tabs
from tests.support.browsing import watching
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

VERIFICATION = "/v1/audit/verification"


def _is_quiet(api: ControlApi) -> bool:
    found = api.admin("GET", VERIFICATION)
    return bool(found["finished_at"]) and not found["running"]


@pytest.fixture
def unsigned(tmp_path: Path) -> Iterator[ControlApi]:
    """An API that signs no checkpoint while the test runs, however busy the machine is."""
    with running_control_api(tmp_path, SLUICE_CHECKPOINT_SECONDS="3600") as api:
        yield api


@pytest.mark.deep(
    stands_in="tests/control_api/console/browser/test_journeys.py::test_a_tampered_row_turns_the_page_red_and_the_overview_names_it"
)
async def test_a_tampered_row_turns_the_audit_page_red_as_soon_as_it_is_read(
    unsigned: ControlApi, tabs: Tabs
) -> None:
    event_id = (await asyncio.to_thread(unsigned.evaluate, source_id="payroll"))["event_id"]
    async with watching(tabs, unsigned.console) as watched:
        tab = await watched.page()
        await sign_in(tab, unsigned.admin_key)
        await asyncio.to_thread(unsigned.admin, "POST", VERIFICATION)
        await asyncio.to_thread(until, "a verification", lambda: _is_quiet(unsigned))
        await tab.goto("/console/audit")
        notice = tab.locator("main > .notice").last
        await expect(notice).to_contain_text("Valid when the service last verified it")

        await asyncio.to_thread(turn_into_permission, unsigned, event_id)
        await tab.get_by_role("button", name="Verify again").click()
        # The page follows the verification, and loads itself again at its end.
        damaged = tab.locator("main > .notice.bad")
        await expect(damaged).to_contain_text("DAMAGED at entry")
        await expect(damaged).to_contain_text(event_id)
        await expect(tab).to_have_title("Damaged log – Sluice")
        # The service refuses the entry's proof too, which the browser's console notes.
        watched.faults.expect(f"/console/decision/proof?id={event_id}")
        await damaged.get_by_role("link").click()
        await tab.wait_for_url(f"**/console/decision?id={event_id}")
        # No checkpoint covers the entry, and none will.
        await expect(tab.get_by_text("verification found a fault here")).to_be_visible()
        await expect(tab.locator("#verdict.bad")).to_contain_text("Not verified")
