"""Makes the pictures of the console that the READMEs show, from the seeded world.

    python -m tests.control_api.console.take_pictures [FOLDER]

The same week at the same hour every time; ids and hashes that the service draws differ.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Browser, Page

from tests.control_api.console.browser.visitors import Visitors
from tests.servers import find
from tests.support.browser_tabs import ColorScheme, Tabs
from tests.support.browsing import launched, watching
from tests.support.company_week import CompanyWeek, inhabited

FOLDER = Path(__file__).with_name("pictures")
NOW = datetime(2026, 6, 18, 16, 30, tzinfo=UTC)
"""A Thursday afternoon, at which the world's week ends."""
_QUALITY = 48
_SIZE = {"width": 1280, "height": 860}


class Picture(NamedTuple):
    """A file's name and the address that it shows."""

    name: str
    address: Callable[[CompanyWeek], str]
    dark: bool = False


PICTURES = (
    Picture("decision", lambda world: f"/console/decision?id={world.denied}"),
    Picture("overview", lambda _: "/console?window=week"),
    Picture("agents", lambda _: "/console/agents"),
    Picture("review", lambda world: f"/console/policies/candidate/review?id={world.candidate}"),
    Picture("access", lambda _: "/console/access"),
    Picture("audit", lambda _: "/console/audit"),
    Picture("decision-dark", lambda world: f"/console/decision?id={world.denied}", dark=True),
)


async def take(world: CompanyWeek, browser: Browser, folder: Path) -> None:
    """Writes one WebP file for each of `PICTURES`."""
    folder.mkdir(parents=True, exist_ok=True)
    tabs = Tabs(browser)
    visitors = Visitors(world, tabs)
    async with watching(tabs, world.api.console) as watched:
        pages: dict[str, Page] = {}
        for picture in PICTURES:
            scheme: ColorScheme = "dark" if picture.dark else "light"
            if scheme not in pages:
                pages[scheme] = await visitors.page(watched, color_scheme=scheme, viewport=_SIZE)
                await pages[scheme].clock.set_fixed_time(NOW)
            # One browser for all: it has verified the log when it comes to the later pages.
            page = pages[scheme]
            await page.goto(picture.address(world))
            await page.wait_for_load_state()
            if await page.locator("#verdict").count():
                await page.locator("#verdict.good").wait_for()
            session = await page.context.new_cdp_session(page)
            form = {"format": "webp", "quality": _QUALITY}
            shot = await session.send("Page.captureScreenshot", form)
            (folder / f"{picture.name}.webp").write_bytes(b64decode(shot["data"]))


async def main(folder: Path) -> int:
    """Returns 1 if there is no Chromium."""
    program = find("chromium")
    if program is None:
        print("no Chromium here: install the package `chromium`", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory() as directory,
        inhabited(Path(directory), now=NOW.timestamp()) as world,
    ):
        async with launched(program) as browser:
            await take(world, browser, folder)
    for path in sorted(folder.glob("*.webp")):
        print(f"{path}  {path.stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)))
