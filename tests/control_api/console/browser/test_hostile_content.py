"""Payloads in a real browser: nothing of them runs, is asked for, or becomes an element.

`console/test_hostile_content.py` reads every page; here the pages are parsed by what people use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.control_api.console.addresses import address_of, hostile_queries, shown_pages
from tests.control_api.console.browser.visitors import sign_in
from tests.control_api.console.hostile import HostileWorld, hostile_world
from tests.control_api.console.test_hostile_content import ATTRIBUTES, TAGS
from tests.runner import tiers
from tests.support.browser_tabs import Tabs
from tests.support.browsing import Watched, watching
from tests.support.control_api import SUPERADMIN

_CANARY = "window.hostileCanary = () => reportViolation('a payload ran')"
_FOREIGN = """([tags, attributes]) => [...document.querySelectorAll("*")].flatMap(each => [
  ...(tags.includes(each.localName) ? [] : [`<${each.localName}>`]),
  ...each.getAttributeNames().filter(name => !attributes.includes(name.toLowerCase())
    && !(["style", "aria-autocomplete"].includes(name) && each.closest("#editor"))),
])"""
"""The editor writes both to elements of its own, which hold no text of others."""

REFUSED = {"/console/policy/restore"}
"""No file defines these policies; what the browser says of a 404 would count as a fault."""


@pytest.fixture(scope="module")
def hostile(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[HostileWorld]:
    with hostile_world(tmp_path_factory.mktemp("hostile"), pytestconfig) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def seen(hostile: HostileWorld, tabs: Tabs) -> AsyncIterator[Watched]:
    async with watching(tabs, hostile.api.console) as pages:
        yield pages


async def test_no_payload_is_executed_as_script(hostile: HostileWorld, seen: Watched) -> None:
    tab = await seen.page()
    await tab.add_init_script(_CANARY)
    tab.on("dialog", lambda _: seen.faults.note("a dialog opened"))
    for by, key in (("admin", hostile.api.admin_key), ("superadmin", SUPERADMIN)):
        await sign_in(tab, key)
        for number, page in enumerate(shown_pages()):
            if (address_of(page.path).by == "superadmin") != (by == "superadmin"):
                continue
            if page.path in REFUSED:
                continue
            # One object or some, other ones on each page.
            queries = hostile_queries(page.path, hostile)
            step = 29 if tiers.deep() else len(queries)
            for query in queries[number % min(len(queries), step) :: step]:
                await tab.goto(page.path + (f"?{urlencode(query)}" if query else ""))
                await _settles(tab, page.path)
    assert seen.faults.lines == []


async def _settles(tab: Page, path: str) -> None:
    await tab.wait_for_load_state("load")
    # A page that follows a verification loads itself again at its end, in the way of what comes.
    await expect(tab.locator("#progress")).to_have_count(0, timeout=30_000)
    assert await tab.evaluate(_FOREIGN, [sorted(TAGS), sorted(ATTRIBUTES)]) == [], path
