"""What a browser that knows a log leaves to its reader: retention purged the proof that it grew, or
an operator accepted an older state. And what it says of witnesses."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from control_api import purge
from control_api.log.commands import accept_incarnation
from policies.ground.canonical import unb64
from policies.trail import checkpoint
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from tests.control_api.console.browser.visitors import sign_in
from tests.deploy.commands.witness.running_witness import WitnessProcess, configure
from tests.support.browser_tabs import Tabs
from tests.support.browsing import watching
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

_VERIFIED = "Verified by this browser"


def _signed(api: ControlApi) -> str:
    event_id: str = api.evaluate()["event_id"]
    path = f"/v1/audit/proof/{event_id}"
    until("a checkpoint", lambda: api.call("GET", path).status == 200)
    return event_id


async def _shows(tab: Page, event_id: str, title: str) -> None:
    await tab.goto(f"/console/decision?id={event_id}")
    await expect(tab.locator("#verdict-title")).to_have_text(title)


async def _go_on(tab: Page) -> None:
    await tab.get_by_role("button", name="I have confirmed this").click()
    await expect(tab.locator("#verdict-title")).to_have_text(_VERIFIED)
    await expect(tab.locator("[data-verified-log].good")).to_be_visible()


@pytest.mark.deep(
    stands_in="tests/control_api/console/proofs/test_history.py::test_a_purge_or_a_new_incarnation_is_explained_confirmed_and_remembered"
)
async def test_growth_that_a_purge_made_unprovable_is_the_readers_to_judge(
    fresh: ControlApi, tabs: Tabs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    monkeypatch.setattr(purge, "INTERVAL_SECONDS", 0.2)
    fresh.restart()
    async with watching(tabs, fresh.console) as watched:
        tab = await watched.page()
        # The service has no proof of growth to show, which the browser's console notes.
        watched.faults.expect("/console/decision/growth?from=")
        await sign_in(tab, fresh.admin_key)
        await _shows(tab, await asyncio.to_thread(_signed, fresh), _VERIFIED)
        await asyncio.to_thread(_signed, fresh)
        await asyncio.to_thread(_purge, fresh)
        await sign_in(tab, fresh.admin_key)
        await _shows(
            tab, await asyncio.to_thread(_signed, fresh), "Verified, but for the log's growth"
        )
        await expect(tab.locator("#verdict.warn")).to_contain_text("were purged")
        await _go_on(tab)


def _purge(api: ControlApi) -> None:
    api.time.ahead += 3 * 86_400
    api.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
    until("a purge", lambda: api.admin("GET", "/v1/audit/retention")["anchor"])
    with sqlite3.connect(api.directory / "data" / "sluice.db") as connection:
        # As it is thinned out after a day: only the last one of an hour stays.
        newest = "SELECT max(number) FROM checkpoints"
        connection.execute(f"DELETE FROM checkpoints WHERE number < ({newest})")


@pytest.mark.deep(
    stands_in="tests/control_api/console/proofs/test_history.py::test_a_purge_or_a_new_incarnation_is_explained_confirmed_and_remembered"
)
async def test_an_accepted_incarnation_is_explained_and_confirmed(
    tmp_path: Path, tabs: Tabs
) -> None:
    notes = tmp_path / "notes"
    with running_control_api(tmp_path, SLUICE_CHECKPOINT_STORE=notes.as_uri()) as api:
        home = api.console
        async with watching(tabs, home) as watched:
            tab = await watched.page()
            await asyncio.to_thread(_signed, api)
            api.stop()
            shutil.copytree(tmp_path / "data", tmp_path / "older")
            # On the same port: a browser's memory is that of an address.
            api.environ["SLUICE_CONTROL_LISTEN"] = f"127.0.0.1:{home.rpartition(':')[2]}"
            api.start()
            event_id = await asyncio.to_thread(_signed, api)
            await _sign_in_anew(tab, api.admin_key)
            await tab.goto(f"/console/decision?id={event_id}")
            await expect(tab.locator("#verdict-title")).to_have_text(_VERIFIED)
            await asyncio.to_thread(_put_back, api, tmp_path)
            event_id = await asyncio.to_thread(_signed, api)
            await _sign_in_anew(tab, api.admin_key)
            await tab.goto(f"/console/decision?id={event_id}")
            told = tab.locator("#verdict.warn")
            await expect(told).to_contain_text("The log goes on as a new incarnation")
            await expect(told).to_contain_text('"restored from a backup"')
            await _go_on(tab)
            await expect(tab.locator("#verdict")).to_contain_text("is in the log, as shown")
            # It is known from now on, and the one before is not taken for it.
            await tab.reload()
            await expect(tab.locator("#verdict-title")).to_have_text(_VERIFIED)


async def _sign_in_anew(tab: Page, key: str) -> None:
    await tab.context.clear_cookies()
    await sign_in(tab, key)


def _put_back(api: ControlApi, directory: Path) -> None:
    """The database as it was, and the operator's word that it may go on so."""
    api.stop()
    shutil.rmtree(directory / "data")
    shutil.copytree(directory / "older", directory / "data")
    told: list[str] = []
    done = accept_incarnation(
        api.settings, api.time.clock(), os.urandom, "default", "restored from a backup", told.append
    )
    assert asyncio.run(done), told
    accepted, note, pins = told
    assert note.split("\n")[0].endswith("#1")
    assert note.split("\n")[0] in accepted
    assert "remove `cache/pinned-checkpoint`" in pins
    api.start()
    [change] = api.admin("GET", "/v1/audit/changes?object_type=log")
    assert (change["action"], change["reason"]) == (
        "incarnation_accepted",
        "restored from a backup",
    )
    assert change["after"]["origin"] == note.split("\n")[0]


async def test_cosignatures_are_verified_and_their_keys_remembered(
    tmp_path: Path, tabs: Tabs
) -> None:
    with running_control_api(tmp_path) as api:
        event_id = await asyncio.to_thread(_signed, api)
        witness = await asyncio.to_thread(_witness, api, event_id, tmp_path)
        with witness:
            api.stop()
            api.environ["SLUICE_WITNESSES"] = f"{witness.key}@http://127.0.0.1:{witness.port}"
            api.start()
            async with watching(tabs, api.console) as watched:
                tab = await watched.page()
                await sign_in(tab, api.admin_key)
                # The sign-in is an entry too. Nothing may follow it: a witness comes after each.
                await asyncio.to_thread(until, "a witness", lambda: _witnessed(api))
                await _shows(tab, event_id, _VERIFIED)
                steps = tab.locator("#steps")
                cosigned = "Cosigned by the witness witness.example/w1 at"
                await expect(steps).to_contain_text(cosigned)
                await expect(steps).to_contain_text("this browser has not seen before")
                await tab.reload()
                await expect(steps).to_contain_text("that this browser knows from before")


def _witnessed(api: ControlApi) -> bool:
    """Whether the whole log is cosigned: the page does not look again."""
    entries = api.admin("GET", "/v1/audit/verify")["total"]
    newest = api.admin("GET", "/v1/audit/checkpoints?limit=1")[0]
    return bool(newest["witnesses"] == 1 and newest["size"] == entries)


def _witness(api: ControlApi, event_id: str, directory: Path) -> WitnessProcess:
    note = api.call("GET", f"/v1/audit/proof/{event_id}").raw.decode().partition("\n\n")[2]
    origin = checkpoint.unverified(note).origin
    key = VerifierKey(origin, ED25519, unb64(api.admin("GET", "/v1/audit/log-keys")["log_key"]))
    folder = directory / "witness"
    folder.mkdir()
    return WitnessProcess(configure(folder, logs=[{"origin": origin, "key": key.text()}]))
