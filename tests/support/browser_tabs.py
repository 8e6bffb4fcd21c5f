"""Tabs that tests use one after the other, since a new one costs up to a second of CPU.

A tab is lent with no cookies but the given ones, nothing stored, no history, the mouse outside, and
the usual viewport and media. When it comes back, it is put into this state again, or closed if that
can't be done: the test left it on another site, opened further pages, or called something that
lasts for good, such as `route`, `on` or `add_init_script`. So a test may do anything with its tab.

The page of the last test stays until the next test goes to its own, since leaving it for a blank
one costs as much as a page. It can do nothing more: it has no timers, requests or storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    CDPSession,
    Cookie,
    Error,
    Page,
    ViewportSize,
    expect,
)

from tests.support.page_faults import Faults, report_faults
from tests.support.waiting import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)

ColorScheme = Literal["light", "dark"]
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
_OF_BOTH = (
    *("add_init_script", "expose_binding", "expose_function", "on", "once", "route"),
    *("route_from_har", "route_web_socket", "set_default_timeout"),
    *("set_default_navigation_timeout", "set_extra_http_headers"),
)
_OF_PAGES = ("add_locator_handler",)
_OF_CONTEXTS = ("grant_permissions", "new_cdp_session", "set_geolocation", "set_offline")
"""The methods with an effect that lasts: Playwright can't take it back, or it would cost more."""
# A page without script never resolves a promise, so this must not need one.
_PARALYSE = """() => {
  const isReal = String(setTimeout).includes("[native code]");  // and no clock of Playwright's
  stop();
  for (let each = setTimeout(() => {}); each > 0; each--) clearTimeout(each);
  const nothing = () => 0, never = () => new Promise(() => {});
  Object.assign(window, { setTimeout: nothing, setInterval: nothing, fetch: never });
  for (const name of ["localStorage", "sessionStorage"]) {
    window[name].clear();
    Object.defineProperty(window, name, { value: {} });
  }
  return isReal;
}"""


class SharedTab:
    """A page in a context of its own."""

    def __init__(self, context: BrowserContext, page: Page, session: CDPSession) -> None:
        self.page = page
        self._context, self._session = context, session
        self._address, self._faults = "", Faults()
        self._is_spoilt = False
        self._goto = page.goto

    @classmethod
    async def opened(cls, browser: Browser, *, script: bool) -> SharedTab:
        """Open a new tab; without `script`, its pages can't run any."""
        context = await browser.new_context(java_script_enabled=script)
        context.set_default_timeout(PATIENCE * 1000)
        page = await context.new_page()
        tab = cls(context, page, await context.new_cdp_session(page))
        await report_faults(context, tab._host, tab._note)
        tab._replace_methods()
        return tab

    async def lend(
        self,
        address: str,
        faults: Faults,
        cookies: Sequence[Cookie],
        viewport: ViewportSize,
        color_scheme: ColorScheme,
    ) -> None:
        """Prepare the tab for a test: relative addresses lead to `address`, the only one that its
        pages may ask, and `faults` collects their faults."""
        if self._address not in ("", address):
            # The service there may have ended, which the last test's page would complain of.
            await self._goto("about:blank")
            await self._session.send("Page.resetNavigationHistory")
        self._address, self._faults = address, faults
        await self._context.add_cookies([{**each} for each in cookies])  # type: ignore[typeddict-item]
        if self.page.viewport_size != viewport:
            await self.page.set_viewport_size(viewport)
        await self.page.emulate_media(
            media="null", color_scheme=color_scheme, reduced_motion="no-preference",
            forced_colors="none", contrast="no-preference",
        )  # fmt: skip

    async def reset(self) -> bool:
        """Undo what a test did. Returns whether the tab is as good as new."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._reset()
        except (Error, TimeoutError):  # it crashed, was closed, or its script runs for ever
            return False

    async def _reset(self) -> bool:
        at_home = urlsplit(self.page.url)[:2] == urlsplit(self._address)[:2]
        if self._is_spoilt or not at_home or self._context.pages != [self.page]:
            return False
        is_real = await self.page.evaluate(_PARALYSE)
        await self._session.send("Page.resetNavigationHistory")
        await self._context.clear_cookies()
        await self.page.mouse.move(-1, -1)
        return bool(is_real)

    async def close(self) -> None:
        await self._context.close()

    def _host(self) -> str:
        return urlsplit(self._address).netloc

    def _note(self, fault: str) -> None:
        self._faults.note(fault)

    def _replace_methods(self) -> None:
        for name in (*_OF_BOTH, *_OF_PAGES):
            setattr(self.page, name, self._spoiling(getattr(self.page, name)))
        for name in (*_OF_BOTH, *_OF_CONTEXTS):
            setattr(self._context, name, self._spoiling(getattr(self._context, name)))
        # A context's own base address can't change.
        goto = self._goto

        def resolved(url: str, **options: Any) -> Any:
            return goto(urljoin(self._address, url), **options)

        setattr(self.page, "goto", resolved)  # noqa: B010  # mypy lets nothing else be replaced

    def _spoiling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            self._is_spoilt = True
            return method(*args, **options)

        return called


class Tabs:
    """The tabs of one browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[bool, list[SharedTab]] = {True: [], False: []}
        self._script = dict[SharedTab, bool]()

    async def take(self, *, script: bool = True) -> SharedTab:
        """Return a tab that no test has at present."""
        if self._free[script]:
            return self._free[script].pop()
        tab = await SharedTab.opened(self._browser, script=script)
        self._script[tab] = script
        return tab

    async def give_back(self, tab: SharedTab) -> None:
        """Keep the tab for the next test, or close it if it can't be as new."""
        if await tab.reset():
            self._free[self._script[tab]].append(tab)
        else:
            del self._script[tab]
            await tab.close()
