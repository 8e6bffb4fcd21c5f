"""What the other tests here rely on: no fault of a page goes unnoticed."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.runner import tiers
from tests.support.browsing import Watched
from tests.support.waiting import until_async

OTHER_HOST = "new Image().src = 'http://tracker.example/pixel.png'"
FAULTS = {
    "request to another host": "location.href = 'http://elsewhere.example/'",
    "policy violated: style-src": "document.body.setAttribute('style', 'color: red')",
    "policy violated: img-src": OTHER_HOST,
    "policy violated: require-trusted-types-for": "document.body.innerHTML = '<p>text</p>'",
    "console error: said": "console.error('said')",
    "console warning: said": "console.warn('said')",
    "script: ": "setTimeout(() => { throw new Error('thrown') })",
    "status 404": "fetch('/console/absent')",
}


@tiers.rotating(0, 2)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_noticed(fault: str, browser_page: Page, watched: Watched) -> None:
    await browser_page.goto("/console/agents")
    assert watched.faults.lines == []
    await browser_page.evaluate(f"try {{ {FAULTS[fault]} }} catch {{}}; 0")
    await until_async(fault, lambda: any(fault in line for line in watched.faults.lines))
    watched.faults.expect("")
