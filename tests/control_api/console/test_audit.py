"""The audit pages: the log's state, its verification, checkpoints and downloads."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.verify.__main__ import main as verifier
from policies.ground.canonical import unb64
from policies.ground.distribution import WHEEL, wheel_digest
from policies.ground.signing import Signer
from policies.trail.proofs.signed_note import COSIGNATURE, ED25519, VerifierKey, cosign, parse
from tests.control_api.console.reader import Element, Visitor
from tests.deploy.commands.witness.running_witness import WitnessProcess, configure
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(
        tmp_path_factory.mktemp("api"), SLUICE_CHECKPOINT_SECONDS="1"
    ) as started:
        yield started


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ControlApi]:
    with running_control_api(tmp_path, SLUICE_CHECKPOINT_SECONDS="1") as started:
        yield started


def _signed(api: ControlApi) -> int:
    """The size of the newest checkpoint, once it covers all that was recorded."""
    total = api.admin("GET", "/v1/audit/verification")["total"]
    path = "/v1/audit/checkpoints?limit=1"
    until("a checkpoint", lambda: (api.admin("GET", path) or [{"size": 0}])[0]["size"] >= total)
    size: int = api.admin("GET", path)[0]["size"]
    return size


def _verified(api: ControlApi) -> None:
    """Waits for the end of a verification that is asked for now."""
    api.admin("POST", "/v1/audit/verification")
    until("the verification", lambda: not api.admin("GET", "/v1/audit/verification")["running"])


def _other_signature(note: str) -> str:
    """The note with a signature that does not fit."""
    text, _, signature = note.rpartition(" ")
    raw = bytearray(base64.b64decode(signature))
    raw[-1] ^= 1
    return f"{text} {base64.b64encode(raw).decode()}\n"


def _tamper(api: ControlApi, event_id: str) -> int:
    """Another source in the event's stored bytes. Returns its entry's number."""
    with sqlite3.connect(api.directory / "data" / "sluice.db") as connection:
        where = "FROM log_entries WHERE eid = ?"
        seq, entry = connection.execute(f"SELECT seq, entry {where}", (event_id,)).fetchone()
        changed = bytes(entry).replace(b'"handbook"', b'"contract"')
        assert changed != bytes(entry)
        connection.execute("UPDATE log_entries SET entry = ? WHERE eid = ?", (changed, event_id))
    return int(seq)


@pytest.mark.deep(stands_in="test_a_sound_log_is_shown_with_its_checkpoint_and_verified_offline")
def test_a_sound_log_is_shown_with_what_was_verified(fresh: ControlApi) -> None:
    fresh.evaluate()
    console = Visitor(fresh).sign_in(fresh.admin_key)
    size = _signed(fresh)
    _verified(fresh)
    shown = console.get("/console/audit")
    assert shown.status == 200
    notice = shown.main.find("div", class_="notice")
    assert "good" in notice.attributes["class"]
    assert notice.text.startswith("Valid when the service last verified it")
    facts = shown.main.find("section", aria_labelledby="latest").text
    told = re.search(r"Entries ([\d,]+) ", facts)
    assert told is not None
    # The log may grow by itself: by a heartbeat.
    assert size <= int(told[1].replace(",", "")) <= _signed(fresh)
    assert "signed" in facts
    assert size > 0
    memory = shown.main.find("div", data_verified_log="default")
    assert int(memory.attributes["data-size"]) >= size
    assert "No witness is configured" in shown.text


def test_a_sound_log_is_shown_with_its_checkpoint_and_verified_offline(
    api: ControlApi, console: Visitor, tmp_path: Path
) -> None:
    api.evaluate()
    size = _signed(api)
    _verified(api)
    shown = console.get("/console/audit")
    notice = shown.main.find("div", class_="notice")
    assert "good" in notice.attributes["class"]
    assert notice.text.startswith("Valid when the service last verified it")
    latest = shown.main.find("section", aria_labelledby="latest")
    assert latest.find("span", class_="badge").text == "signed"
    told = re.search(r"Entries ([\d,]+) ", latest.text)
    assert told is not None
    # The log may grow by itself: by a heartbeat.
    assert size <= int(told[1].replace(",", "")) <= _signed(api)
    memory = shown.main.find("div", data_verified_log="default")
    assert int(memory.attributes["data-size"]) >= size
    assert "No witness is configured" in shown.text
    rows = console.get("/console/audit/checkpoints").main.find("tbody").find_all("tr")
    assert any(str(size) in row.text.replace(",", "") for row in rows)
    one = console.get(f"/console/audit/checkpoint?size={size}")
    assert one.heading == f"Checkpoint of {size:,} entries"
    note = console.get(f"/console/audit/checkpoint.txt?size={size}")
    assert note.headers["Content-Type"].startswith("text/plain")
    assert note.raw.decode() == api.call("GET", f"/v1/audit/checkpoint?size={size}").raw.decode()
    assert note.raw.decode().strip() in "".join(map(str, one.main.find("pre").children))
    page = console.get("/console/audit/downloads")
    for each in (page, console.get("/console/audit/evidence")):
        assert {WHEEL, wheel_digest()} <= {code.text for code in each.main.find_all("code")}
    key = page.main.find("section", aria_labelledby="offline").find("pre").text
    log = tmp_path / "log.ndjson"
    log.write_bytes(console.get("/console/audit/download?openings=none").raw)
    (tmp_path / "log.pub").write_text(key)
    command = [str(log), "--key", str(tmp_path / "log.pub"), "--recompute"]
    assert verifier(command) == 0
    log.write_bytes(log.read_bytes().replace(b'"handbook"', b'"contract"'))
    assert verifier(command) == 1


def test_a_reader_begins_a_verification_and_sees_its_progress(
    api: ControlApi, reader: Visitor
) -> None:
    _verified(api)
    shown = reader.submit(reader.get("/console/audit"), "/console/audit/verify")
    assert shown.status == 200
    found = json.loads(reader.get("/console/audit/progress", Accept="application/json").raw)
    assert found.keys() >= {"running", "first", "reached", "total"}


def test_each_damage_turns_the_page_red_and_is_named(fresh: ControlApi) -> None:
    console = Visitor(fresh).sign_in(fresh.admin_key)
    event_id = fresh.evaluate()["event_id"]
    fresh.evaluate()
    fresh.new_key("read")
    size = _signed(fresh)
    database = fresh.directory / "data" / "sluice.db"

    def change(statement: str, *values: object) -> None:
        with sqlite3.connect(database) as connection:
            connection.execute(statement, values)

    def read(query: str, *values: object) -> Any:
        with sqlite3.connect(database) as connection:
            return connection.execute(query, values).fetchone()

    def told() -> Element:
        notice = console.get("/console/audit").main.find("div", class_="notice")
        assert "bad" in notice.attributes["class"]
        return notice

    (note,) = read("SELECT note FROM checkpoints WHERE size = ?", size)
    changed = _other_signature(note)
    change("UPDATE checkpoints SET note = ? WHERE size = ?", changed, size)
    assert told().text.startswith("NOT SIGNED")
    assert "NOT SIGNED" in console.get(f"/console/audit/checkpoint?size={size}").text
    change("UPDATE checkpoints SET note = ? WHERE size = ?", note, size)
    change("UPDATE log_heads SET size = size - 2")
    assert told().text.startswith("ENTRIES ARE MISSING")
    change("UPDATE log_heads SET size = size + 2")

    where = "FROM log_entries WHERE kind = 'change' ORDER BY seq DESC LIMIT 1"
    eid, entry = read(f"SELECT eid, entry {where}")
    damaged = bytes(entry).replace(b'"read"', b'"read!"')
    change("UPDATE log_entries SET entry = ? WHERE eid = ?", damaged, eid)
    _verified(fresh)
    notice = told()
    assert f"Record {eid} , which is no decision" in notice.text
    assert not notice.find_all("a")

    seq = _tamper(fresh, event_id)
    _verified(fresh)
    notice = told()
    assert notice.text.startswith(f"DAMAGED at entry {seq}")
    assert event_id in notice.text
    assert notice.find("a").attributes["href"] == f"/console/decision?id={event_id}"


def test_a_witness_is_behind_where_it_cosigned_an_earlier_checkpoint(tmp_path: Path) -> None:
    signer = Signer(bytes(range(32)))
    name = "auditor.example"
    keys = [
        VerifierKey(name, COSIGNATURE, signer.public).text(),
        VerifierKey("away.example", COSIGNATURE, Signer(bytes(32)).public).text(),
    ]
    settings = {
        "SLUICE_CHECKPOINT_SECONDS": "1",
        "SLUICE_WITNESSES": ",".join(f"{key}@http://127.0.0.1:9" for key in keys),
    }
    with running_control_api(tmp_path, **settings) as api:
        api.evaluate()
        console = Visitor(api).sign_in(api.admin_key)
        size = _signed(api)
        with sqlite3.connect(api.directory / "data" / "sluice.db") as connection:
            query = "SELECT note FROM checkpoints WHERE size = ?"
            note = parse(connection.execute(query, (size,)).fetchone()[0])
            line = cosign(note.text, name, signer, 1_767_225_600)
            more = note._replace(signatures=(*note.signatures, line)).render()
            connection.execute("UPDATE checkpoints SET note = ? WHERE size = ?", (more, size))

        def told() -> list[str]:
            shown = console.get("/console/audit").main.find("section", aria_labelledby="witnesses")
            return [row.find("span", class_="badge").text for row in shown.find_all("tr")[1:]]

        assert told() == ["up to date", "has not cosigned"]
        assert name in console.get(f"/console/audit/checkpoint?size={size}").text
        api.evaluate()
        behind = _signed(api) - size
        assert told() == [f"{behind} behind", "has not cosigned"]


def test_entries_after_the_verification_are_not_shown_as_verified(fresh: ControlApi) -> None:
    _verified(fresh)
    fresh.evaluate()
    shown = Visitor(fresh).sign_in(fresh.admin_key).get("/console/audit")
    assert "is not verified yet" in shown.text or "at entry" in shown.text


@pytest.mark.deep(stands_in="test_a_reader_begins_a_verification_and_sees_its_progress")
def test_a_verification_is_begun_by_a_reader_and_shows_its_progress(fresh: ControlApi) -> None:
    reader = Visitor(fresh).sign_in(fresh.new_key("read"))
    until("the button", lambda: "Verify again" in reader.get("/console/audit").text)
    shown = reader.submit(reader.get("/console/audit"), "/console/audit/verify")
    assert shown.status == 200
    asked = reader.get("/console/audit/progress", Accept="application/json")
    found = json.loads(asked.raw)
    assert found.keys() >= {"running", "first", "reached", "total"}
    if found["running"]:
        bar = shown.main.find_all("progress")
        assert [each.attributes["aria-label"] for each in bar] in ([], ["Entries verified"])
    until("its end", lambda: "not running" in reader.get("/console/audit").text)
    assert reader.get("/console/audit").main.find_all("form", action="/console/audit/verify")


@pytest.mark.deep(stands_in="test_each_damage_turns_the_page_red_and_is_named")
def test_a_tampered_row_turns_the_page_red_and_is_named(fresh: ControlApi) -> None:
    fresh.evaluate()
    event_id = fresh.evaluate()["event_id"]
    _signed(fresh)
    seq = _tamper(fresh, event_id)
    _verified(fresh)
    console = Visitor(fresh).sign_in(fresh.admin_key)
    shown = console.get("/console/audit")
    notice = shown.main.find("div", class_="notice")
    assert "bad" in notice.attributes["class"]
    assert notice.text.startswith(f"DAMAGED at entry {seq}")
    assert event_id in notice.text
    assert shown.page.find("title").text.startswith("Damaged log")
    link = notice.find("a").attributes["href"]
    assert link == f"/console/decision?id={event_id}"
    assert console.get(link).status == 200
    assert not [each for each in shown.main.find_all("div", class_="good") if "Valid" in each.text]


@pytest.mark.deep(stands_in="test_each_damage_turns_the_page_red_and_is_named")
def test_a_damaged_record_that_is_no_decision_is_named_without_a_link(fresh: ControlApi) -> None:
    fresh.new_key("read")
    _signed(fresh)
    with sqlite3.connect(fresh.directory / "data" / "sluice.db") as connection:
        where = "WHERE kind = 'change' ORDER BY seq DESC LIMIT 1"
        eid, entry = connection.execute(f"SELECT eid, entry FROM log_entries {where}").fetchone()
        changed = bytes(entry).replace(b'"read"', b'"read!"')
        connection.execute("UPDATE log_entries SET entry = ? WHERE eid = ?", (changed, eid))
    _verified(fresh)
    shown = Visitor(fresh).sign_in(fresh.admin_key).get("/console/audit")
    notice = shown.main.find("div", class_="notice")
    assert "DAMAGED" in notice.text
    assert f"Record {eid} , which is no decision" in notice.text
    assert not notice.find_all("a")


@pytest.mark.deep(stands_in="test_each_damage_turns_the_page_red_and_is_named")
def test_a_log_that_lost_its_newest_entries_is_red(fresh: ControlApi) -> None:
    for _ in range(3):
        fresh.evaluate()
    console = Visitor(fresh).sign_in(fresh.admin_key)
    _signed(fresh)
    with sqlite3.connect(fresh.directory / "data" / "sluice.db") as connection:
        connection.execute("UPDATE log_heads SET size = size - 2")
    shown = console.get("/console/audit")
    assert "bad" in shown.main.find("div", class_="notice").attributes["class"]


@pytest.mark.deep(stands_in="test_each_damage_turns_the_page_red_and_is_named")
def test_a_note_that_was_changed_is_shown_as_not_signed(fresh: ControlApi) -> None:
    fresh.evaluate()
    console = Visitor(fresh).sign_in(fresh.admin_key)
    size = _signed(fresh)
    with sqlite3.connect(fresh.directory / "data" / "sluice.db") as connection:
        query = "SELECT note FROM checkpoints WHERE size = ?"
        note = connection.execute(query, (size,)).fetchone()[0]
        changed = _other_signature(note)
        connection.execute("UPDATE checkpoints SET note = ? WHERE size = ?", (changed, size))
    shown = console.get(f"/console/audit/checkpoint?size={size}")
    assert "NOT SIGNED" in shown.text
    assert "unsigned" in shown.text
    assert "NOT SIGNED" in console.get("/console/audit").text


@pytest.mark.deep(stands_in="test_a_witness_is_behind_where_it_cosigned_an_earlier_checkpoint")
def test_a_witness_is_up_to_date_or_behind_or_has_not_cosigned(
    fresh: ControlApi, tmp_path: Path
) -> None:
    fresh.evaluate()
    _signed(fresh)
    origin = fresh.admin("GET", "/v1/audit/checkpoints")[0]["origin"]
    key = fresh.admin("GET", "/v1/audit/log-keys")["log_key"]
    log = {"origin": origin, "key": VerifierKey(origin, ED25519, unb64(key)).text()}
    (tmp_path / "witness").mkdir()
    witness = WitnessProcess(configure(tmp_path / "witness", name="auditor", logs=[log]))
    try:
        away = VerifierKey("away", COSIGNATURE, bytes(range(32))).text()
        fresh.environ["SLUICE_WITNESSES"] = (
            f"{witness.key}@http://127.0.0.1:{witness.port},{away}@http://127.0.0.1:9"
        )
        fresh.restart()
        console = Visitor(fresh).sign_in(fresh.admin_key)

        def told() -> list[str]:
            rows = console.get("/console/audit").main.find_all(
                "section", aria_labelledby="witnesses"
            )
            return [each.find("span", class_="badge").text for each in rows[0].find_all("tr")[1:]]

        until("a cosignature", lambda: told() == ["up to date", "has not cosigned"])
        size = _signed(fresh)

        def counted() -> list[tuple[int, list[str]]]:
            listed = fresh.admin("GET", "/v1/audit/checkpoints")
            return [
                (each["witnesses"], each["witness_names"]) for each in listed
                if each["size"] == size
            ]  # fmt: skip

        until("it is listed with its name", lambda: counted() == [(1, ["auditor"])])
        assert "auditor" in console.get("/console/audit/checkpoints").main.find("tbody").text
        one = console.get(f"/console/audit/checkpoint?size={size}")
        until("its cosignature", lambda: "auditor" in console.get(one.address).text)
    finally:
        witness.kill()
    fresh.evaluate()
    _signed(fresh)
    until("it is behind", lambda: "behind" in told()[0])


@pytest.mark.deep(stands_in="test_a_sound_log_is_shown_with_its_checkpoint_and_verified_offline")
def test_checkpoints_are_listed_and_downloaded(api: ControlApi, console: Visitor) -> None:
    api.evaluate()
    size = _signed(api)
    shown = console.get("/console/audit/checkpoints")
    assert shown.status == 200
    rows = shown.main.find("tbody").find_all("tr")
    assert str(size) in rows[0].text.replace(",", "")
    one = console.get(f"/console/audit/checkpoint?size={size}")
    assert one.heading == f"Checkpoint of {size:,} entries"
    note = console.get(f"/console/audit/checkpoint.txt?size={size}")
    assert note.headers["Content-Type"].startswith("text/plain")
    assert note.raw.decode() == api.call("GET", f"/v1/audit/checkpoint?size={size}").raw.decode()
    assert note.raw.decode().strip() in "".join(map(str, one.main.find("pre").children))


@pytest.mark.parametrize(("size", "status"), [("999999999", 404), ("many", 422), ("", 422)])
def test_a_checkpoint_that_does_not_exist_is_refused(
    console: Visitor, size: str, status: int
) -> None:
    shown = console.get(f"/console/audit/checkpoint?size={size}")
    assert shown.status == status
    assert console.get(f"/console/audit/checkpoint.txt?size={size}").status == status


def test_a_wrong_cursor_of_the_list_of_checkpoints_is_refused(console: Visitor) -> None:
    shown = console.get("/console/audit/checkpoints?cursor=made-up")
    assert shown.status == 422
    assert "cursor" in shown.text


@pytest.mark.deep(stands_in="test_a_sound_log_is_shown_with_its_checkpoint_and_verified_offline")
def test_the_downloaded_log_is_verified_offline(
    api: ControlApi, console: Visitor, tmp_path: Path
) -> None:
    api.evaluate()
    _signed(api)
    page = console.get("/console/audit/downloads")
    key = page.main.find("section", aria_labelledby="offline").find("pre").text
    got = console.get("/console/audit/download?openings=none")
    assert "attachment" in got.headers["Content-Disposition"]
    (tmp_path / "log.ndjson").write_bytes(got.raw)
    (tmp_path / "log.pub").write_text(key)
    command = [sys.executable, "-m", "deploy.commands.verify", "log.ndjson", "--key", "log.pub"]
    done = subprocess.run(
        [*command, "--recompute"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pinned" in done.stdout


def entry_lines(export: bytes) -> list[bytes]:
    return [line for line in export.splitlines() if line.startswith(b'{"entry":')]


def test_decisions_that_match_are_downloaded(api: ControlApi, console: Visitor) -> None:
    api.evaluate(user_id="downloaded")
    api.evaluate(user_id="downloaded", source_id="payroll")
    query = "format=csv&user_id=downloaded&decision=DENY&from=&since="
    got = console.get(f"/console/audit/download?{query}")
    assert got.status == 200
    assert len(got.raw.splitlines()) == 2
    assert console.get(f"/console/audit/download?{query}1h").raw == got.raw
    assert len(console.get(f"/console/audit/download?{query}&before=1h").raw.splitlines()) <= 1
    assert console.get("/console/audit/download?from=1h").status == 200
    assert got.raw.count(b"payroll") >= 1
    got = console.get("/console/audit/download?openings=none")
    assert "attachment" in got.headers["Content-Disposition"]
    exported = api.call("GET", "/v1/audit/export?openings=none").raw
    # The later one may have more, and documents that its first page cites.
    entries = entry_lines(got.raw)
    assert entries
    assert entry_lines(exported)[: len(entries)] == entries
    page = console.get("/console/audit/downloads")
    key = page.main.find("section", aria_labelledby="offline").find("pre").text
    log_key = unb64(api.admin("GET", "/v1/audit/log-keys")["log_key"])
    assert base64.b64decode(key.split("+", 2)[2])[1:] == log_key


@pytest.mark.parametrize(
    "query", ["from=yesterday", "format=exe", "user_id=ann", "format=csv&since=yesterday"]
)
def test_an_invalid_download_is_refused_on_the_page(console: Visitor, query: str) -> None:
    shown = console.get(f"/console/audit/download?{query}")
    assert shown.status == 422
    assert shown.heading == "Downloads"
    assert shown.main.find("div", role="alert").text
