"""The live tail in a browser: paused without loss, broken off without a gap, refused with a
reason, and told to screen readers without haste."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from control_api.log import tails
from control_api.log.tail_reading import read_new
from policies.ground.errors import Unavailable
from tests.control_api.audit.test_judged_records import DAY, Sidecar, agent, now
from tests.support.browsing import Watched
from tests.support.company_week import CompanyWeek

STATE, FIGURES = "#tail-state", "#tail-figures"
MARKS = ["not its agent", "doubtful time"]
# Notes each text of the state, which screen readers announce.
ANNOUNCED = """() => {
  window.announced = [];
  const state = document.getElementById("tail-state");
  const note = () => window.announced.push(state.textContent);
  new MutationObserver(note).observe(state, { childList: true, subtree: true });
}"""


def decide(world: CompanyWeek, user: str, number: int = 1) -> None:
    for _ in range(number):
        world.api.evaluate(agent_role="support_assistant", user_id=user)


def away(*_: object) -> None:
    raise Unavailable("the database is away")


async def live(page: Page, user: str) -> None:
    await page.goto(f"/console/decisions?user_id={user}")
    await expect(page.locator(STATE)).to_have_text("Live")


@pytest.mark.deep(stands_in="test_a_tail_of_an_ended_session_shows_that_it_ended")
async def test_a_record_that_arrives_is_marked_as_it_is_in_the_list(
    world: CompanyWeek, browser_page: Page
) -> None:
    ours, theirs = agent(world.api, "ours"), agent(world.api, "theirs")
    sidecar = Sidecar(world.api, ours)
    await live(browser_page, "marked")
    records = [
        sidecar.decided("DENY", agent_id=theirs, user_id="marked"),
        sidecar.decided("DENY", at=now() - 31 * DAY, user_id="marked"),
        sidecar.decided("DENY", user_id="marked"),
    ]
    assert sidecar.sent(records) == []
    rows = browser_page.locator("#rows tr")
    for _ in ("as they arrive", "as the page lists them"):
        await expect(rows).to_have_count(3)
        shown = [await row.inner_text() for row in await rows.all()]
        found = [[mark for mark in MARKS if mark in text] for text in shown]
        assert sorted(found) == [[], ["doubtful time"], ["not its agent"]]
        await browser_page.reload()


@pytest.mark.deep(stands_in="test_a_tail_of_an_ended_session_shows_that_it_ended")
async def test_a_pause_keeps_what_arrives_and_says_how_many(
    world: CompanyWeek, browser_page: Page
) -> None:
    await live(browser_page, "pausing")
    await browser_page.evaluate(ANNOUNCED)
    rows = browser_page.locator("#rows tr")
    decide(world, "pausing", 2)
    await expect(rows).to_have_count(2)
    await browser_page.keyboard.press("p")
    decide(world, "pausing", 3)
    await expect(browser_page.locator(FIGURES)).to_contain_text("3 waiting")
    await expect(rows).to_have_count(2)
    await browser_page.get_by_role("button", name="Resume").click()
    await expect(rows).to_have_count(5)
    # The rows that came were not announced one by one.
    assert await browser_page.evaluate("announced") == ["Paused", "Live"]


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_decisions.py::test_a_tail_begins_where_its_page_ends"
)
async def test_a_tail_begins_where_its_page_ends(
    world: CompanyWeek, browser_page: Page, monkeypatch: pytest.MonkeyPatch, watched: Watched
) -> None:
    """What is recorded after the page was made and before the tail begins is shown, once."""
    monkeypatch.setattr(tails, "MAX_OF_OWNER", 0)
    watched.faults.expect("503")
    decide(world, "between")
    await browser_page.goto("/console/decisions?user_id=between")
    await expect(browser_page.locator(STATE)).to_contain_text("Not live: 0 live tails")
    decide(world, "between", 2)
    monkeypatch.undo()
    await expect(browser_page.locator("#rows tr")).to_have_count(3)
    await expect(browser_page.locator(STATE)).to_have_text("Live")


@pytest.mark.deep(stands_in="test_a_tail_of_an_ended_session_shows_that_it_ended")
async def test_a_broken_tail_continues_without_a_gap_or_a_repetition(
    world: CompanyWeek, browser_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live(browser_page, "broken")
    decide(world, "broken", 2)
    rows = browser_page.locator("#rows tr")
    await expect(rows).to_have_count(2)
    monkeypatch.setattr(tails, "read_new", away)
    await expect(browser_page.locator(STATE)).to_contain_text("Connection lost, trying again")
    decide(world, "broken", 3)
    monkeypatch.setattr(tails, "read_new", read_new)
    await expect(browser_page.locator(STATE)).to_have_text("Live")
    decide(world, "broken")
    await expect(rows).to_have_count(6)
    links = [await each.get_attribute("href") for each in await rows.locator("td a").all()]
    shown = [each for each in links if each and each.startswith("/console/decision?")]
    assert len(set(shown)) == 6


async def test_a_tail_of_an_ended_session_shows_that_it_ended(
    world: CompanyWeek, browser_page: Page, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.faults.expect("401")
    decide(world, "ended")
    await live(browser_page, "ended")
    await browser_page.evaluate(ANNOUNCED)
    rows = browser_page.locator("#rows tr")
    await browser_page.keyboard.press("p")
    decide(world, "ended", 2)
    await expect(browser_page.locator(FIGURES)).to_contain_text("2 waiting")
    await expect(rows).to_have_count(1)
    await browser_page.get_by_role("button", name="Resume").click()
    await expect(rows).to_have_count(3)
    assert await browser_page.evaluate("announced") == ["Paused", "Live"]
    # Broken off or hidden, it goes on where it was, without a gap or a repetition.
    monkeypatch.setattr(tails, "read_new", away)
    await expect(browser_page.locator(STATE)).to_have_text("Connection lost, trying again")
    decide(world, "ended")
    monkeypatch.setattr(tails, "read_new", read_new)
    await expect(rows).to_have_count(4)
    await browser_page.evaluate("dispatchEvent(new Event('pagehide')); 0")
    decide(world, "ended")
    await browser_page.evaluate("dispatchEvent(new Event('pageshow')); 0")
    await expect(rows).to_have_count(5)
    # What the service noted of a sidecar's record is shown in its row.
    sidecar = Sidecar(world.api, agent(world.api, "ours"))
    theirs = agent(world.api, "theirs")
    marked = sidecar.decided("DENY", agent_id=theirs, user_id="ended", at=now() - 31 * DAY)
    assert sidecar.sent([marked]) == []
    await expect(rows).to_have_count(6)
    assert [mark for mark in MARKS if mark in await rows.first.inner_text()] == MARKS
    links = [await each.get_attribute("href") for each in await rows.locator("td a").all()]
    assert len({each for each in links if each and "/decision?" in each}) == 6
    # Its page is hidden, and shown again after the session has ended elsewhere.
    await browser_page.evaluate("dispatchEvent(new Event('pagehide')); 0")
    await browser_page.context.clear_cookies()
    await browser_page.evaluate("dispatchEvent(new Event('pageshow')); 0")
    await expect(browser_page.locator(STATE)).to_have_text("Your session has ended: sign in again")
