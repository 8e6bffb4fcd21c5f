"""The editor of policies: suggestions and faults while one types, by the keyboard alone."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.control_api.console.browser.visitors import Visitors
from tests.support.browsing import Watched
from tests.support.company_week import CompanyWeek

GOOD = "name: a\nagent_role: b\nallowed_sources: []\ndenied_sources: []\nmax_sensitivity: low"


async def _opened(page: Page, world: CompanyWeek, text: str) -> None:
    await page.goto(f"/console/policy/edit?id={world.policy_id}")
    await page.locator("#f-text").focus()
    await page.keyboard.press("Control+A")
    await page.keyboard.insert_text(text)


@pytest.mark.deep(stands_in="test_the_editor_works_on_a_small_screen")
async def test_keys_and_values_are_suggested_from_the_schema(
    browser_page: Page, world: CompanyWeek
) -> None:
    page, area = browser_page, browser_page.locator("#f-text")
    await _opened(page, world, "name: a\n")
    shown = page.locator("#suggestions [role=option]")
    await page.keyboard.type("ma")
    await expect(shown).to_have_count(1)
    await expect(area).not_to_have_attribute("aria-activedescendant", "suggestion-0")
    await page.keyboard.press("ArrowDown")
    await expect(area).to_have_attribute("aria-activedescendant", "suggestion-0")
    await page.keyboard.press("Enter")
    # Its values follow at once; the second of them is taken.
    await expect(shown).to_have_count(4)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(area).to_have_value("name: a\nmax_sensitivity: medium")
    await page.keyboard.press("Enter")
    await page.keyboard.press("Control+Space")
    names = await page.locator("#suggestions code").all_text_contents()
    assert "agent_role" in names
    assert not {"name", "max_sensitivity"} & set(names)
    await page.keyboard.press("Escape")
    await expect(page.locator("#suggestions")).to_be_hidden()
    await page.keyboard.type("allowed_s")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await page.keyboard.type("crm")
    await expect(area).to_have_value("name: a\nmax_sensitivity: medium\nallowed_sources: [crm]")
    await page.keyboard.press("Control+Z")
    await expect(area).not_to_have_value("name: a\nmax_sensitivity: medium\nallowed_sources: [crm]")


@pytest.mark.deep(stands_in="test_the_editor_works_on_a_small_screen")
async def test_faults_appear_at_their_lines_and_disappear(
    browser_page: Page, world: CompanyWeek
) -> None:
    page, area = browser_page, browser_page.locator("#f-text")
    await _opened(page, world, f"{GOOD}\ncolour: <b>red</b>")
    faults = page.locator("#editor-faults li")
    await expect(faults).to_have_count(1)
    await expect(page.locator("#gutter .bad")).to_have_text("6")
    await expect(area).to_have_attribute("aria-invalid", "true")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(area).to_be_focused()
    await page.keyboard.press("Backspace")
    await page.keyboard.press("Backspace")
    await expect(area).to_have_value(GOOD)
    await expect(faults).to_have_count(0)
    await expect(page.locator("#editor-state")).to_have_text("No fault")


@pytest.mark.deep(stands_in="test_the_editor_works_on_a_small_screen")
async def test_tab_leaves_the_editor_both_ways(browser_page: Page, world: CompanyWeek) -> None:
    page, area = browser_page, browser_page.locator("#f-text")
    await _opened(page, world, "name: a\na")
    await page.keyboard.press("Tab")
    await expect(area).not_to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(area).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(area).not_to_be_focused()
    await expect(area).to_have_value("name: a\na")


async def test_the_editor_works_on_a_small_screen(
    watched: Watched, visitors: Visitors, world: CompanyWeek
) -> None:
    page = await visitors.page(watched, viewport={"width": 360, "height": 740})
    await _opened(page, world, "name: a\n")
    await page.keyboard.press("Control+Space")
    box = await page.locator("#suggestions").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    # It suggests, tells faults and lets go of the focus there too.
    await page.keyboard.press("Escape")
    await page.keyboard.type("ma")
    await expect(page.locator("#suggestions [role=option]")).to_have_count(1)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("#suggestions [role=option]")).to_have_count(4)
    await page.keyboard.press("Escape")
    await expect(page.locator("#f-text")).to_have_value("name: a\nmax_sensitivity: ")
    await page.keyboard.type("lower")
    await page.keyboard.press("Escape")
    await expect(page.locator("#editor-faults li").first).to_be_visible()
    await expect(page.locator("#gutter .bad")).to_have_text(["1", "2"])
    # What is there already is suggested no more.
    await page.keyboard.press("Enter")
    await page.keyboard.press("Control+Space")
    names = await page.locator("#suggestions code").all_text_contents()
    assert "agent_role" in names
    assert not {"name", "max_sensitivity"} & set(names)
    await page.keyboard.press("Escape")
    # The faults go with what was wrong.
    await page.keyboard.press("Control+A")
    await page.keyboard.insert_text(GOOD)
    await expect(page.locator("#editor-state")).to_have_text("No fault")
    await expect(page.locator("#editor-faults li")).to_have_count(0)
    # Tab leaves, both ways, and takes no suggestion.
    area = page.locator("#f-text")
    await page.keyboard.type("\nd")
    await expect(page.locator("#suggestions")).to_be_visible()
    # A fault that is told between the two keys would take the focus on the way back.
    await expect(page.locator("#editor-faults li").first).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(area).not_to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(area).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(area).not_to_be_focused()
    await expect(area).to_have_value(f"{GOOD}\nd")
