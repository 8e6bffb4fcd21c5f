"""A real Chromium for tests, and the pages that a test opens in it.

Async tests that use it share one event loop with it: `tests/conftest.py` marks them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Cookie, Error, Page, ViewportSize, async_playwright

from tests.support.browser_tabs import VIEWPORT, ColorScheme, SharedTab, Tabs
from tests.support.page_faults import Faults

_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",  # each process costs a quarter of a second of CPU
    # The test reports the attempt; this keeps it from leaving the machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE *localhost",
)


class Watched:
    """Opens pages that may ask one host alone, and collects their faults."""

    def __init__(self, tabs: Tabs, address: str) -> None:
        self.address, self.faults = address, Faults()
        self._tabs, self._lent = tabs, list[SharedTab]()

    async def page(
        self,
        cookies: Sequence[Cookie] = (),
        *,
        viewport: ViewportSize = VIEWPORT,
        color_scheme: ColorScheme = "light",
        java_script_enabled: bool = True,
    ) -> Page:
        """Open a blank page that shares nothing with the others, and has these cookies."""
        tab = await self._tabs.take(script=java_script_enabled)
        self._lent.append(tab)
        await tab.lend(self.address, self.faults, cookies, viewport, color_scheme)
        return tab.page

    async def settle(self) -> None:
        """Make a round trip to each page: faults that it told of before have arrived then."""
        for page in [page for tab in self._lent for page in tab.page.context.pages]:
            try:
                await page.evaluate("0")  # a timer would not run on a page without script
            except Error:  # it shows a download, or is leaving
                continue

    async def close(self) -> None:
        for tab in self._lent:
            await self._tabs.give_back(tab)


@asynccontextmanager
async def launched(program: Path) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Its sandbox needs rights that a container lacks, and it shows our own pages alone.
        browser = await playwright.chromium.launch(
            executable_path=program, args=_FLAGS, chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def watching(tabs: Tabs, address: str) -> AsyncIterator[Watched]:
    """Fail at the end if one of the pages had a fault."""
    watched = Watched(tabs, address)
    try:
        yield watched
        await watched.settle()
    finally:
        await watched.close()
    assert not watched.faults.lines, "\n".join(watched.faults.lines)
