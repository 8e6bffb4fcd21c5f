"""The keyboard's shortcuts: they lead to the areas, say what they are, and can be switched off."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.control_api.console.browser.test_every_page import FINDINGS, RULES


async def test_letters_lead_to_areas_until_they_are_switched_off(browser_page: Page) -> None:
    await browser_page.goto("/console")
    await browser_page.keyboard.type("ga")
    await browser_page.wait_for_url("**/console/agents")
    await browser_page.keyboard.type("?")
    shown = browser_page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(shown).to_be_visible()
    terms = await shown.locator("dl > dt > kbd").all_text_contents()
    assert {"/", "?", "g a"} <= set(terms)
    await expect(shown.locator("dl > dd")).to_have_count(len(terms))
    await browser_page.get_by_label("Shortcuts are on").press("Space")
    await browser_page.keyboard.press("Escape")
    # Closed, it has no role any more, and is gone from the page only afterwards.
    await expect(browser_page.locator("dialog")).to_have_count(0)
    await browser_page.keyboard.type("go")
    await browser_page.keyboard.type("?")
    assert await browser_page.locator("dialog").count() == 0
    assert browser_page.url.endswith("/console/agents")


@pytest.mark.deep(stands_in="test_letters_lead_to_areas_until_they_are_switched_off")
async def test_the_list_of_shortcuts_is_usable_by_everyone(browser_page: Page, axe: str) -> None:
    await browser_page.goto("/console/agents")
    await browser_page.keyboard.type("?")
    await browser_page.evaluate(f"{axe}; 0")
    assert await browser_page.evaluate(FINDINGS, RULES) == []
