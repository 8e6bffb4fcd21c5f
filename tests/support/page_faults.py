"""Notices each fault of the pages that a browser's context shows."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Request, Response

_VIOLATIONS = """
addEventListener("securitypolicyviolation", ({ effectiveDirective, blockedURI, sample }) =>
  reportViolation(`${effectiveDirective} ${blockedURI} ${sample}`), true);
"""
_LOCAL = ("data", "blob", "about")


class Faults:
    """The events that must not happen on a page, each as a line: a message in the console, an error
    of a script, a violation of the page's policy, a request that failed or went to another host."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._expected: list[str] = []

    def expect(self, text: str) -> None:
        """Announce a fault that the test makes itself: lines with this text don't count."""
        self._expected.append(text)

    def note(self, line: str) -> None:
        """Note a fault that a test has found."""
        self._found.append(line)

    @property
    def lines(self) -> list[str]:
        return [line for line in self._found if not any(each in line for each in self._expected)]


async def report_faults(
    context: BrowserContext, host: Callable[[], str], note: Callable[[str], None]
) -> None:
    """Call `note` with each fault from now on, as a line. `host` returns the only host, with its
    port, that pages may ask at that time."""

    def requested(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in _LOCAL and (address.scheme, address.netloc) != ("http", host()):
            note(f"request to another host: {request.url}")

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            where = message.location.get("url", "")
            note(f"console {message.type}: {message.text} ({where})")

    def failed(request: Request) -> None:
        # A page that is left breaks off what it was loading.
        if request.failure != "net::ERR_ABORTED":
            note(f"failed: {request.method} {request.url}: {request.failure}")

    def answered(response: Response) -> None:
        if response.status >= 400:
            request = response.request
            note(f"status {response.status}: {request.method} {response.url}")

    context.on("request", requested)
    context.on("requestfailed", failed)
    context.on("response", answered)
    context.on("console", said)
    context.on("weberror", lambda error: note(f"script: {error.error}"))
    await context.expose_binding(
        "reportViolation", lambda _, text: note(f"policy violated: {text}")
    )
    await context.add_init_script(_VIOLATIONS)
