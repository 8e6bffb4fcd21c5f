"""The seeded world in a real browser. A test fails if a page that it opened had a fault."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.control_api.console.browser.visitors import Visitors
from tests.servers import need
from tests.support.browser_tabs import Tabs
from tests.support.browsing import Watched, watching
from tests.support.company_week import CompanyWeek


@pytest.fixture(scope="session")
def visitors(world: CompanyWeek, tabs: Tabs) -> Visitors:
    """Opens pages signed in."""
    return Visitors(world, tabs)


@pytest_asyncio.fixture(loop_scope="session")
async def watched(world: CompanyWeek, tabs: Tabs) -> AsyncIterator[Watched]:
    """Opens pages of the world's console, and fails if one had a fault."""
    async with watching(tabs, world.api.console) as pages:
        yield pages


@pytest_asyncio.fixture(loop_scope="session")
async def browser_page(watched: Watched, visitors: Visitors) -> Page:
    """Signed in as the default tenant's admin, in light colours, at 1280 × 800."""
    return await visitors.page(watched)


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what keeps people from using a page."""
    script: Path = need("axe-core")
    return script.read_text("utf-8")
