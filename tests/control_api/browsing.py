"""A real Chromium for tests, and what notices each fault of the pages that it shows.

Async tests that use it share one event loop with it: `conftest.py` marks them. Knows no page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Response,
    async_playwright,
)

_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The test reports the attempt; this keeps it from leaving the machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_VIOLATIONS = """
addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI, sample }) =>
  reportViolation(`${effectiveDirective} ${blockedURI} ${sample}`), true);
"""
_LOCAL = ("data", "blob", "about")


class Faults:
    """What must not happen on a page, each as a line: a message in the console, an error of a
    script, a violation of the page's policy, a request that failed or went to another host."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._expected: list[str] = []

    def expect(self, text: str) -> None:
        """A test that makes a fault says so first: lines with this text don't count."""
        self._expected.append(text)

    def note(self, line: str) -> None:
        """A fault that a test has found."""
        self._found.append(line)

    @property
    def lines(self) -> list[str]:
        return [line for line in self._found if not any(each in line for each in self._expected)]

    async def watch(self, context: BrowserContext, host: str) -> None:
        """`host` is the only one that pages may ask, with its port."""

        def requested(request: Request) -> None:
            address = urlsplit(request.url)
            if address.scheme not in _LOCAL and (address.scheme, address.netloc) != ("http", host):
                self._found.append(f"request to another host: {request.url}")

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning", "assert"):
                where = message.location.get("url", "")
                self._found.append(f"console {message.type}: {message.text} ({where})")

        def failed(request: Request) -> None:
            # A page that is left breaks off what it was loading.
            if request.failure != "net::ERR_ABORTED":
                self._found.append(f"failed: {request.method} {request.url}: {request.failure}")

        def answered(response: Response) -> None:
            if response.status >= 400:
                request = response.request
                self._found.append(f"status {response.status}: {request.method} {response.url}")

        context.on("request", requested)
        context.on("requestfailed", failed)
        context.on("response", answered)
        context.on("console", said)
        context.on("weberror", lambda error: self._found.append(f"script: {error.error}"))
        await context.expose_binding(
            "reportViolation", lambda _, text: self._found.append(f"policy violated: {text}")
        )
        await context.add_init_script(_VIOLATIONS)


class Watched:
    """Opens pages that may ask one host alone, and collects their faults."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.address, self.faults = address, Faults()
        self._browser, self._contexts = browser, list[BrowserContext]()

    async def page(self, **options: Any) -> Page:
        """A page of a new context with these options of Playwright's `new_context`."""
        context = await self._browser.new_context(base_url=self.address, **options)
        self._contexts.append(context)
        context.set_default_timeout(20_000)
        await self.faults.watch(context, urlsplit(self.address).netloc)
        return await context.new_page()

    @property
    def open_pages(self) -> list[Page]:
        return [page for context in self._contexts for page in context.pages]

    async def close(self) -> None:
        for context in self._contexts:
            await context.close()


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
async def watching(browser: Browser, address: str) -> AsyncIterator[Watched]:
    """Fails at the end if one of the pages had a fault."""
    watched = Watched(browser, address)
    try:
        yield watched
        await _settled(watched)
    finally:
        await watched.close()
    assert not watched.faults.lines, "\n".join(watched.faults.lines)


async def _settled(watched: Watched) -> None:
    """A round trip to each page: faults that it has told of before have arrived then."""
    for page in watched.open_pages:
        try:
            await page.evaluate("0")  # a timer would not run on a page without script
        except Error:  # it shows a download, or is leaving
            continue
