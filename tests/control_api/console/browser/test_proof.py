"""The proof of a decision, verified in a browser, and what this browser remembers of the log
(`test_tampering.py` has what was changed)."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.control_api.audit.test_judged_records import Sidecar, agent
from tests.control_api.console.browser.visitors import sign_in
from tests.policies.world import MARK, SQL
from tests.support.browser_tabs import Tabs
from tests.support.browsing import watching
from tests.support.control_api import ControlApi
from tests.support.open_store import decision
from tests.support.waiting import until

CHANGED = """() => Object.keys(localStorage).filter(name => name.startsWith("sluice-log "))
    .map(name => {
        const kept = localStorage[name];
        localStorage[name] = JSON.stringify({ ...JSON.parse(kept), CHANGE });
        return [name, kept];
    })"""
KNOWN = """() => Object.keys(localStorage).filter(name => name.startsWith("sluice-log "))
    .map(name => JSON.parse(localStorage[name]))"""
CHANGES = {
    'root: btoa("\\0".repeat(32))': "rewritten",
    'size: "1000000"': "put back",
    'log: "sluice/other/default"': "another one",
    'key: btoa("\\0".repeat(32))': "not signed by a trusted key",
}


async def verdict(tab: Page, event_id: str) -> None:
    await tab.goto(f"/console/decision?id={event_id}")


def _signed(api: ControlApi, event_id: str) -> bool:
    return api.call("GET", f"/v1/audit/proof/{event_id}").status == 200


async def test_a_decision_in_the_log_is_verified_in_the_browser(
    fresh: ControlApi, tabs: Tabs
) -> None:
    event_id = fresh.evaluate()["event_id"]
    until("a checkpoint", lambda: _signed(fresh, event_id))
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, fresh.admin_key)
        await verdict(tab, event_id)
        title = tab.locator("#verdict-title")
        await expect(title).to_have_text("Verified by this browser")
        # The log grows, and this browser remembers what it has verified.
        later = fresh.evaluate()["event_id"]
        until("a checkpoint", lambda: _signed(fresh, later))
        await verdict(tab, later)
        await expect(title).to_have_text("Verified by this browser")
        await expect(tab.locator("#steps")).to_contain_text("are unchanged")
        (known,) = await tab.evaluate(KNOWN)
        assert known.keys() >= {"log", "key", "witnesses", "origin", "size", "root", "at"}
        assert known["origin"] == known["log"]
        # As if the log had been another one when this browser verified it, or had another key.
        for change, told in CHANGES.items():
            kept = await tab.evaluate(CHANGED.replace("CHANGE", change))
            await verdict(tab, later)
            await expect(tab.locator("#verdict.bad")).to_contain_text(told)
            await tab.evaluate(
                "kept => { for (const [name, each] of kept) localStorage[name] = each; }", kept
            )
        # Other pages say what this browser has verified, and no more.
        await tab.goto("/console")
        await expect(tab.locator("[data-verified-log].good")).to_contain_text(
            "Your browser has verified this log up to entry"
        )
        another = await watched.page()
        await sign_in(another, fresh.admin_key)
        await another.goto("/console")
        await expect(another.locator("[data-verified-log]")).to_contain_text(
            "Your browser has not verified this log yet"
        )


@pytest.mark.deep(stands_in="test_a_decision_in_the_log_is_verified_in_the_browser")
async def test_what_a_statement_read_is_shown_verified_and_erased(
    fresh: ControlApi, tabs: Tabs
) -> None:
    sidecar = Sidecar(fresh, agent(fresh, "sql"))
    record = decision(agent_id=sidecar.agent_id, query=SQL, statement=MARK)
    assert sidecar.sent([sidecar.put(record)]) == []
    shown = {
        "query": SQL,
        # A record without facts is masked: value by value, and of binary ones the size alone.
        "parameters": '["[EMAIL]",{"bytes":4},null]',
        "statement_id": MARK.id,
        "statement_look": MARK.look,
        "statement_fingerprint": MARK.fingerprint,
        "statement_digest": MARK.digest,
    }
    event = fresh.admin("GET", f"/v1/audit/events/{record.eid}")["event"]
    assert {name: event[name] for name in shown} == shown
    until("a checkpoint", lambda: _signed(fresh, record.eid))
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, fresh.admin_key)
        await verdict(tab, record.eid)
        await expect(tab.locator("#verdict-title")).to_have_text("Verified by this browser")
        for name, value in shown.items():
            await expect(tab.locator(f"[data-field={name}]")).to_have_text(str(value))
        erase = {"event_ids": [record.eid], "reason": "a test"}
        fresh.admin("POST", "/v1/audit/redact", erase)
        await verdict(tab, record.eid)
        await expect(tab.locator("#verdict-title")).to_have_text("Verified by this browser")
        for name in ("query", "parameters", "statement_digest"):
            await expect(tab.locator(f"[data-field={name}]")).to_have_text("none")
        # What joins the records of one statement stays.
        await expect(tab.locator("[data-field=statement_id]")).to_have_text(MARK.id)


@pytest.mark.deep(stands_in="test_a_decision_in_the_log_is_verified_in_the_browser")
@pytest.mark.parametrize(("change", "told"), CHANGES.items())
async def test_a_log_that_was_rewritten_is_noticed_by_what_the_browser_remembers(
    fresh: ControlApi, tabs: Tabs, change: str, told: str
) -> None:
    event_id = fresh.evaluate()["event_id"]
    until("a checkpoint", lambda: _signed(fresh, event_id))
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        await sign_in(tab, fresh.admin_key)
        await verdict(tab, event_id)
        await expect(tab.locator("#verdict-title")).to_have_text("Verified by this browser")
        # As if the log had been another one when this browser verified it, or had another key.
        await tab.evaluate(CHANGED.replace("CHANGE", change))
        await verdict(tab, event_id)
        await expect(tab.locator("#verdict.bad")).to_contain_text(told)
