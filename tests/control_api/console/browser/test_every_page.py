"""Every page of the table, as people with different eyes, hands and screens meet it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page as Tab

from control_api.console.page import Page
from control_api.console.pages import PAGES
from tests.control_api.console.addresses import ADDRESSES, address_of, shown_pages
from tests.control_api.console.browser.visitors import Visitors
from tests.runner import tiers
from tests.support.browsing import Watched
from tests.support.company_week import CompanyWeek

SHOWN = pytest.mark.parametrize("page", shown_pages(), ids=lambda page: page.path)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
FINDINGS = """async (run) => {
  const { violations } = await axe.run(document, { runOnly: run, resultTypes: ["violations"] });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html}\\n  ${failureSummary}`));
}"""
# What scrolls in its own frame may be wider than the page; what is not shown has no width.
OVERFLOW = """() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const found = wide > 0 ? [`the page is ${wide} px too wide`] : [];
  for (const each of document.body.querySelectorAll("*")) {
    const { right, left, width } = each.getBoundingClientRect();
    if (width === 0 || each.closest("svg, .skip, .unseen")) continue;
    let frame = each.parentElement;
    while (frame && getComputedStyle(frame).overflowX === "visible") frame = frame.parentElement;
    if (frame && frame !== document.documentElement && frame !== document.body) continue;
    if (right > innerWidth + 1 || left < -1)
      found.push(`cut off at ${innerWidth} px: ${each.outerHTML.slice(0, 160)}`);
  }
  return found.slice(0, 8);
}"""
MOVING = """() => [...document.querySelectorAll("*")].filter(each => {
  const { transitionDuration, animationName } = getComputedStyle(each);
  return animationName !== "none" || transitionDuration.split(",").some(time => parseFloat(time));
}).length + document.getAnimations().length"""
# As if no field had taken the focus when the page was opened.
TOP = """() => {
  document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute("tabindex");
}"""
CONTROLS = """() => {
  const every = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const groups = new Set();
  return window.controls = [...document.querySelectorAll(every)].filter(each => {
    if (each.disabled || each.tabIndex < 0 || !each.checkVisibility({ visibilityProperty: true }))
      return false;
    if (each.type !== "radio") return true;
    const group = `${each.form?.action} ${each.name}`;
    return !groups.has(group) && groups.add(group);
  });
}"""
# Notes each control that Tab reaches, and whether a person sees that it has the focus.
FOLLOW = """() => {
  window.reached = []; window.unseen = [];
  addEventListener("focusin", ({ target }) => {
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(target);
    const marked = (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2)
      || boxShadow !== "none";
    const text = target.outerHTML.slice(0, 120);
    const stop = target.type === "radio" ? target.form.elements[target.name][0] : target;
    window.reached.push(window.controls.indexOf(stop));
    if (!marked) window.unseen.push(text);
  });
}"""


def test_every_address_belongs_to_a_page() -> None:
    assert set(ADDRESSES) <= {page.path for page in PAGES if page.method == "GET"}


async def opened(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors, **options: Any
) -> Tab:
    """The page in a tab, loaded."""
    address = address_of(page.path)
    tab = await visitors.page(watched, address.by, **options)
    answer = await tab.goto(address.of(page, world))
    assert answer is not None
    assert answer.status == 200, (page.path, answer.status)
    return tab


@tiers.rotating(1, 12)
@SHOWN
async def test_a_page_is_usable_by_everyone(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors, axe: str
) -> None:
    tab = await opened(page, world, watched, visitors)
    await tab.evaluate(f"{axe}; 0")  # its value is an object too large to return
    assert await tab.evaluate(FINDINGS, RULES) == []
    await tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert await tab.evaluate(FINDINGS, RULES) == []
    assert await tab.evaluate(MOVING) == 0


@tiers.rotating(0, 12)
@SHOWN
async def test_a_page_fits_small_screens_and_large_type(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    tab = await opened(page, world, watched, visitors, viewport={"width": 360, "height": 740})
    assert await tab.evaluate(OVERFLOW) == []
    # 1280 pixels at 200 %: half as many, twice as dense.
    await tab.set_viewport_size({"width": 640, "height": 400})
    assert await tab.evaluate(OVERFLOW) == []
    await tab.set_viewport_size({"width": 1280, "height": 800})
    assert await tab.evaluate(OVERFLOW) == []


@tiers.rotating(4, 12)
@SHOWN
async def test_tab_reaches_each_control_in_order_and_shows_where_it_is(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    tab = await opened(page, world, watched, visitors)
    await tab.evaluate(TOP)
    controls = await tab.evaluate(f"({CONTROLS})().length")
    await tab.evaluate(FOLLOW)
    for _ in range(controls):
        await tab.keyboard.press("Tab")
    reached = await tab.evaluate("window.reached")
    names = await tab.evaluate("window.controls.map(each => each.outerHTML.slice(0, 120))")
    missed = [names[each] for each in range(controls) if each not in reached]
    assert reached == list(range(controls)), missed
    assert await tab.evaluate("window.unseen") == []


@tiers.rotating(5, 12)
@SHOWN
async def test_the_first_tab_skips_to_the_content(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    tab = await opened(page, world, watched, visitors)
    await tab.evaluate(TOP)
    await tab.keyboard.press("Tab")
    assert await tab.evaluate("document.activeElement.getBoundingClientRect().top >= 0")
    await tab.keyboard.press("Enter")
    assert await tab.evaluate("document.activeElement.localName") == "main"


@tiers.rotating(2, 12)
@SHOWN
async def test_a_page_shows_its_content_without_script(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    with_script = await opened(page, world, watched, visitors)
    without = await opened(page, world, watched, visitors, java_script_enabled=False)
    assert await without.locator("h1").inner_text() == await with_script.locator("h1").inner_text()
    for part in ("h2", "tbody tr", "main form"):
        assert await without.locator(part).count() >= await with_script.locator(part).count(), part


@tiers.rotating(3, 12)
@SHOWN
async def test_each_dialog_takes_the_focus_and_returns_it(
    page: Page, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    tab = await opened(page, world, watched, visitors)
    buttons = tab.locator("button[aria-haspopup=dialog]:visible")
    for number in range(await buttons.count()):
        await buttons.nth(number).focus()
        await tab.keyboard.press("Enter")
        dialog = tab.locator("dialog[open]")
        assert await dialog.count() == 1
        assert await dialog.get_attribute("aria-labelledby") or await dialog.get_attribute(
            "aria-label"
        )
        assert await tab.evaluate("document.activeElement.closest('dialog[open]') !== null")
        await tab.keyboard.press("Escape")
        await dialog.wait_for(state="detached")
        assert await buttons.nth(number).evaluate("each => each === document.activeElement")
