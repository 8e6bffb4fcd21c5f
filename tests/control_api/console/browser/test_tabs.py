"""What the other tests here rely on: a test sees nothing of what an earlier one did in its tab."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Page

from tests.control_api.console.browser.visitors import Visitors, sign_in
from tests.runner import tiers
from tests.support.browser_tabs import Tabs
from tests.support.browsing import Watched, watching
from tests.support.company_week import CompanyWeek

Change = Callable[[Page], Awaitable[object]]
# What a page can tell of the tab that it is in.
STATE = """() => ({
  cookies: document.cookie,
  local: { ...localStorage },
  session: { ...sessionStorage },
  history: Math.max(2, history.length),  // a used tab still has the page of the last test
  viewport: [innerWidth, innerHeight],
  media: ["dark", "light"].filter(each => matchMedia(`(prefers-color-scheme: ${each})`).matches),
  still: matchMedia("(prefers-reduced-motion)").matches,
  print: matchMedia("print").matches,
  clock: String(setTimeout),
  date: new Date().getFullYear(),
  mark: window.mark ?? document.querySelector("[data-mark]"),
})"""
STORE = "localStorage.mark = sessionStorage.mark = 'left'"


async def _emulate(page: Page) -> None:
    await page.emulate_media(media="print", color_scheme="dark", reduced_motion="reduce")


async def _add_page(page: Page) -> None:
    await (await page.context.new_page()).goto(page.url)


CHANGES: dict[str, Change] = {
    "cookies": lambda page: page.context.add_cookies(
        [{"name": "mark", "value": "left", "url": page.url}]
    ),
    "storage": lambda page: page.evaluate(STORE),
    "storage, late": lambda page: page.evaluate(f"setTimeout(() => {{ {STORE} }}, 20); 0"),
    "a reload, late": lambda page: page.evaluate("setTimeout(() => location.reload(), 20); 0"),
    "history": lambda page: page.goto("/console/agents"),
    "viewport": lambda page: page.set_viewport_size({"width": 400, "height": 300}),
    "media": _emulate,
    "a global": lambda page: page.evaluate("window.mark = 'left'"),
    "a script of every page": lambda page: page.add_init_script("window.mark = 'left'"),
    "a binding": lambda page: page.expose_function("mark", lambda: "left"),
    "a clock": lambda page: page.clock.set_fixed_time("2001-01-01"),
    "a route": lambda page: page.route("**", lambda route: route.abort()),
    "a route of the context": lambda page: page.context.route("**", lambda each: each.abort()),
    "no network": lambda page: page.context.set_offline(True),
    "a page more": _add_page,
    "a page closed": lambda page: page.close(),
    "another site": lambda page: page.goto("data:text/html,elsewhere"),
    "a fault": lambda page: page.evaluate("console.error('left')"),
}

TAKEN_BACK = (
    *("cookies", "storage", "storage, late", "history", "viewport", "media"),
    *("a global", "a fault"),
)
"""Those after which the tab is as good as new, so that the next test gets it."""


async def _state(
    tabs: Tabs, world: CompanyWeek, change: Change | None = None
) -> tuple[object, Page]:
    """What a page sees in a tab, and the page; `change` is made afterwards."""
    async with watching(tabs, world.api.console) as watched:
        page = await watched.page()
        assert await page.context.cookies() == []
        await page.goto("/console/sign-in")
        state = await page.evaluate(STATE)
        if change is not None:
            watched.faults.expect("")
            await change(page)
    return state, page


@tiers.rotating(0, 5)
@pytest.mark.parametrize("change", CHANGES)
async def test_changes_by_one_test_do_not_reach_the_next(
    change: str, tabs: Tabs, world: CompanyWeek
) -> None:
    before, earlier = await _state(tabs, world, CHANGES[change])
    after, page = await _state(tabs, world)
    assert after == before
    assert page is earlier or change not in TAKEN_BACK


@pytest.mark.deep(stands_in="test_changes_by_one_test_do_not_reach_the_next")
async def test_a_test_gets_the_tab_of_an_earlier_one(tabs: Tabs, world: CompanyWeek) -> None:
    address = world.api.console
    async with watching(tabs, address) as watched:
        first = await watched.page()
        await first.goto("/console/sign-in")
        assert await watched.page() != first  # it is taken
    async with watching(tabs, address) as watched:
        assert first in [await watched.page(), await watched.page()]


@pytest.mark.deep(
    stands_in="tests/control_api/console/browser/test_shortcuts.py::test_letters_lead_to_areas_until_they_are_switched_off"
)
async def test_a_test_that_signs_out_signs_out_no_one_else(
    tabs: Tabs, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    async with watching(tabs, watched.address) as earlier:
        page = await earlier.page()
        await sign_in(page, world.keys["read"])
        await page.context.clear_cookies()
    page = await visitors.page(watched, "read")
    await page.goto("/console/agents")
    assert page.url.endswith("/console/agents")
