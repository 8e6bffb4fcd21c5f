"""Evidence reports: made from the console, verified offline, bounded, and nothing left behind."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control_api.console.views.audit import evidence
from control_api.edge.answers import Stream
from deploy.commands.verify.__main__ import main as verifier
from policies.ground.errors import Conflict, TooLarge, Unavailable
from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(
        tmp_path_factory.mktemp("api"), SLUICE_CHECKPOINT_SECONDS="1"
    ) as started:
        yield started


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files, which must be empty afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.glob("sluice-report-*")) == []


def _signed(api: ControlApi, event_id: str) -> None:
    path = f"/v1/audit/proof/{event_id}"
    until("a checkpoint", lambda: api.call("GET", path).status == 200)


def _files(shown: Shown) -> dict[str, bytes]:
    assert shown.status == 200, shown.text
    assert shown.headers["Content-Type"] == "application/zip"
    assert "attachment" in shown.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(shown.raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _verify(report: bytes, folder: Path) -> str:
    (folder / "report.json").write_bytes(report)
    command = [sys.executable, "-m", "deploy.commands.verify", str(folder / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_evidence_of_an_event_includes_what_followed_from_it(
    api: ControlApi, console: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = api.evaluate()["event_id"]
    api.evaluate()
    action = {"event_id": event_id, "action_type": "summary_sent"}
    api.admin("POST", "/v1/audit/lineage", action)
    api.evaluate(user_id="someone-else")

    async def nothing_made(export: Stream, by: str, name: str) -> Stream:
        assert (by, name) == ("event", event_id)
        return export

    monkeypatch.setattr(evidence, "make_report", nothing_made)
    given = console.get(f"/console/audit/report?kind=event&id={event_id}").raw
    assert event_id.encode() in given
    assert b"summary_sent" in given
    assert b"someone-else" not in given


@pytest.mark.deep(stands_in="test_evidence_of_an_event_includes_what_followed_from_it")
def test_evidence_of_an_event_with_its_lineage_is_verified_offline(
    api: ControlApi, console: Visitor, tmp_path: Path
) -> None:
    event_id = api.evaluate(user_id="ann")["event_id"]
    api.evaluate(user_id="someone-else")
    action = {"event_id": event_id, "action_type": "summary_sent"}
    api.admin("POST", "/v1/audit/lineage", action)
    _signed(api, api.evaluate()["event_id"])
    page = console.get(f"/console/audit/evidence?kind=event&id={event_id}")
    assert page.main.find("input", name="id").attributes["value"] == event_id
    decision = console.get(f"/console/decision?id={event_id}")
    links = [each.attributes["href"] for each in decision.main.find_all("a")]
    [where] = [each for each in links if each.startswith("/console/audit/report")]
    files = _files(console.get(where))
    assert set(files) == {"report.html", "report.json"}
    assert event_id.encode() in files["report.html"]
    assert b"summary_sent" in files["report.html"]
    assert b"someone-else" not in files["report.json"]
    assert _verify(files["report.json"], tmp_path)


def test_evidence_of_a_session_is_verified_offline(
    api: ControlApi, console: Visitor, tmp_path: Path
) -> None:
    ids = [api.evaluate(session_id="--s 1")["event_id"] for _ in range(3)]
    _signed(api, ids[-1])
    files = _files(console.get("/console/audit/report?kind=session&id=--s%201"))
    assert all(each.encode() in files["report.json"] for each in ids)
    # A decision's page gives its browser the proof, and a download of it the evidence.
    key = api.admin("GET", "/v1/audit/log-keys")["log_key"]
    given = json.loads(console.get(f"/console/decision/proof?id={ids[0]}").raw)
    assert given["proof"].startswith("c2sp.org/tlog-proof@v1\n")
    assert given["openings"]["user_id"][1] == "ann"
    assert given["log_key"] == key
    file = console.get(f"/console/decision/proof.txt?id={ids[0]}")
    assert file.raw.decode() == given["proof"]
    kept = tmp_path / "evidence.json"
    kept.write_bytes(console.get(f"/console/decision/evidence.json?id={ids[0]}").raw)
    assert verifier([str(kept), "--key", key]) == 0
    kept.write_text(kept.read_text().replace("ann", "joe"))
    assert verifier([str(kept), "--key", key]) == 1
    assert _verify(files["report.json"], tmp_path)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("kind=event&id=absent", 404),
        ("kind=session&id=absent", 404),
        ("kind=event&id=", 422),
        ("kind=user&id=ann", 422),
        ("id=ann", 422),
    ],
)
def test_an_impossible_report_is_refused_on_the_page(
    console: Visitor, query: str, status: int
) -> None:
    shown = console.get(f"/console/audit/report?{query}")
    assert shown.status == status
    assert shown.heading == "Evidence"
    assert shown.main.find("div", role="alert").text


@pytest.mark.deep(stands_in="test_an_export_that_does_not_verify_gives_no_report")
def test_a_damaged_log_gives_no_report(fresh: ControlApi) -> None:
    event_id = fresh.evaluate()["event_id"]
    _signed(fresh, event_id)
    with sqlite3.connect(fresh.directory / "data" / "sluice.db") as connection:
        query = "SELECT entry FROM log_entries WHERE eid = ?"
        entry = bytes(connection.execute(query, (event_id,)).fetchone()[0])
        changed = entry.replace(b'"handbook"', b'"contract"')
        connection.execute("UPDATE log_entries SET entry = ? WHERE eid = ?", (changed, event_id))
    console = Visitor(fresh).sign_in(fresh.admin_key)
    shown = console.get(f"/console/audit/report?kind=event&id={event_id}")
    assert shown.status == 409
    assert "FAILED" in shown.main.find("div", role="alert").text
    assert "sluice-report-" not in shown.text


def test_a_tenant_makes_one_report_at_a_time(
    api: ControlApi, console: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = api.evaluate()["event_id"]
    begun, go_on = threading.Event(), threading.Event()

    async def slow(export: Stream, _by: str, _name: str) -> Stream:
        begun.set()
        await asyncio.to_thread(go_on.wait, 60)
        return Stream("application/zip", _given(b"made"), export.filename)

    monkeypatch.setattr(evidence, "make_report", slow)
    where = f"/console/audit/report?kind=event&id={event_id}"
    with ThreadPoolExecutor(1) as other:
        first = other.submit(console.get, where)
        assert begun.wait(60)
        second = console.get(where)
        go_on.set()
        assert first.result(60).raw == b"made"
    assert second.status == 503
    assert "running already" in second.main.find("div", role="alert").text


async def _given(*pieces: bytes, wait: float = 0) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        await asyncio.sleep(wait)
        yield piece


async def test_a_report_is_not_made_from_an_invalid_export() -> None:
    with pytest.raises(Conflict) as raised:
        await evidence.make_report(Stream("", _given(b"no export")), "event", "e")
    assert raised.value.details
    assert "/" not in raised.value.details.partition("`")[2].partition("`")[0]


@pytest.mark.parametrize(("code", "told"), [(1, "FAILED"), (2, "can't be made")])
async def test_an_export_that_does_not_verify_gives_no_report(
    monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    says = f"import sys; print('entry 3 is damaged'); sys.exit({code})"
    monkeypatch.setattr(evidence, "this_program", lambda _: (sys.executable, "-S", "-c", says))
    with pytest.raises(Conflict, match=told) as raised:
        await evidence.make_report(Stream("", _given(b"an export")), "event", "e")
    assert raised.value.details == ("entry 3 is damaged" if code == 1 else "")


async def test_a_report_larger_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = (
        "import sys\n"
        "for name in ('report.html', 'report.json'):\n"
        "    open(f'{sys.argv[-1]}/{name}', 'w').write('12345')\n"
    )
    monkeypatch.setattr(evidence, "this_program", lambda _: (sys.executable, "-S", "-c", writes))
    monkeypatch.setattr(evidence, "MAX_REPORT", 10)
    made = await evidence.make_report(Stream("", _given(b"an export")), "event", "e")
    assert [piece[:2] async for piece in made.pieces] == [b"PK"]
    monkeypatch.setattr(evidence, "MAX_REPORT", 9)
    with pytest.raises(TooLarge):
        await evidence.make_report(Stream("", _given(b"an export")), "event", "e")


async def test_a_report_takes_no_longer_than_its_limit() -> None:
    slow = Stream("", _given(b"a", wait=30))
    with pytest.raises(Unavailable, match="not made within"):
        await evidence.make_report(slow, "event", "e", seconds=0.05)


async def test_an_export_is_no_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MAX_EXPORT", 10)
    with pytest.raises(TooLarge):
        await evidence.make_report(Stream("", _given(b"a" * 11)), "event", "e")


@pytest.mark.deep(stands_in="test_a_report_larger_than_the_limit_is_refused")
async def test_a_report_is_no_larger_than_its_limit(
    api: ControlApi, console: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = api.evaluate()["event_id"]
    await asyncio.to_thread(_signed, api, event_id)
    monkeypatch.setattr(evidence, "MAX_REPORT", 10)
    where = f"/console/audit/report?kind=event&id={event_id}"
    shown = await asyncio.to_thread(console.get, where)
    assert shown.status == 413
