"""Signing in at an identity provider in a real browser: what SameSite, redirects between sites and
the page's policy make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, ConsoleMessage, expect

from tests.control_api.console.company import Company, founded


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    with founded(tmp_path_factory.mktemp("company")) as made:
        yield made


async def test_a_person_signs_in_at_the_provider_and_out_again(
    company: Company, chromium: Browser
) -> None:
    # 127.0.0.1 and localhost are two sites, as a console and its provider are.
    assert company.url.startswith("http://127.0.0.1:")
    assert company.provider.issuer.startswith("http://localhost:")
    context = await chromium.new_context()
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        ours = message.location.get("url", "").startswith(company.url)
        if ours and message.type in ("error", "warning"):
            said.append(message.text)

    context.on("console", note)
    context.on("weberror", lambda error: said.append(str(error.error)))
    page = await context.new_page()
    try:
        await page.goto(f"{company.url}/console/account")
        await page.get_by_role("link", name="Sign in with single sign-on").click()
        await page.get_by_placeholder("Enter any login").fill("ann")
        await page.get_by_placeholder("and password").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
        # Where the first address led, signed in, without a click more.
        await expect(page.get_by_role("heading", name="Account")).to_be_visible()
        assert page.url == f"{company.url}/console/account"
        name = re.compile(r"oidc:ann@example\.com~[0-9a-f]{12}")
        await expect(page.get_by_role("main")).to_contain_text(name)
        cookies = {each.get("name"): each for each in await context.cookies(company.url)}
        assert cookies["sluice_console"].get("sameSite") == "Strict"
        # Neither a script nor a later visit to the callback gets anything out of it.
        assert await page.evaluate("document.cookie") == ""
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("link", name="Sign out at the identity provider too").click()
        await page.get_by_role("button", name=re.compile("Yes")).click()
        await expect(page.get_by_role("heading", name="Sign in to Sluice")).to_be_visible()
        assert page.url.startswith(f"{company.url}/console/sign-in")
        assert not said
    finally:
        await context.close()
