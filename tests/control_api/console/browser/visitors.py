"""Signs in once per person through the page, and opens pages in that session.

Knows no other page."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Cookie, Page

from tests.support.browser_tabs import Tabs
from tests.support.browsing import Watched, watching
from tests.support.company_week import CompanyWeek
from tests.support.control_api import SUPERADMIN


async def sign_in(page: Page, key: str) -> None:
    """By the page, as a person does."""
    await page.goto("/console/sign-in")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").first.click()
    await page.wait_for_url(lambda url: "/sign-in" not in url)


class Visitors:
    """Keeps the cookies of who signed in once: `admin`, `read`, `superadmin`, `other` (the admin
    of another tenant)."""

    def __init__(self, world: CompanyWeek, tabs: Tabs) -> None:
        self._tabs = tabs
        self._keys = {**world.keys, "superadmin": SUPERADMIN, "other": world.tenant_key}
        self._kept: dict[str, list[Cookie]] = {}

    async def page(self, watched: Watched, by: str = "admin", **options: Any) -> Page:
        """A page with these options of `Watched.page`, signed in; not so for `anyone`."""
        if by == "anyone":
            return await watched.page(**options)
        if by not in self._kept:
            async with watching(self._tabs, watched.address) as first:
                page = await first.page()
                await sign_in(page, self._keys[by])
                self._kept[by] = await page.context.cookies()
        return await watched.page(self._kept[by], **options)
