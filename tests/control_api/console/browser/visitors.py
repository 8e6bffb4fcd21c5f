"""Signs in once per person through the page, and opens pages in that session.

Knows no other page."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, Page, StorageState

from tests.control_api.browsing import Watched, watching
from tests.control_api.console.world import World
from tests.control_api.running_api import SUPERADMIN


async def sign_in(page: Page, key: str) -> None:
    """By the page, as a person does."""
    await page.goto("/console/sign-in")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").first.click()
    await page.wait_for_url(lambda url: "/sign-in" not in url)


class Visitors:
    """Keeps the cookies of who signed in once: `admin`, `read`, `superadmin`, `other` (the admin
    of another tenant)."""

    def __init__(self, world: World, browser: Browser) -> None:
        self._browser = browser
        self._keys = {**world.keys, "superadmin": SUPERADMIN, "other": world.tenant_key}
        self._kept: dict[str, StorageState] = {}

    async def page(self, watched: Watched, by: str = "admin", **options: Any) -> Page:
        """A page in a new context with these options, signed in; not so for `anyone`."""
        if by != "anyone":
            if by not in self._kept:
                async with watching(self._browser, watched.address) as first:
                    page = await first.page()
                    await sign_in(page, self._keys[by])
                    self._kept[by] = await page.context.storage_state()
            options["storage_state"] = self._kept[by]
        return await watched.page(**options)
