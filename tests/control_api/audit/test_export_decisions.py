"""The export of decisions in other formats, over HTTP and on both databases."""

from __future__ import annotations

import asyncio
import csv
import gzip
import http.client
import io
import json
import threading
from typing import Any

import orjson
import pytest

from control_api import purge
from control_api.audit.bundle import MAX_EXPORTS
from control_api.edge import sending
from control_api.log.export import decisions
from control_api.log.export.ending import ExportStopped
from control_api.log.export.file import Wanted
from control_api.log.export.rows import Pace
from control_api.log.formats import FORMATS
from policies.trail.merkle_tree import leaf_hash
from policies.trail.record import REPORT_PREFIX
from tests.control_api.audit.test_export_log import alter, filled, url_of
from tests.control_api.store.databases import sqlite_url
from tests.runner import tiers
from tests.support.control_api import ControlApi
from tests.support.open_store import TENANT, decision, opened, sql
from tests.support.waiting import PATIENCE, until

__all__ = ["sqlite_url"]  # a fixture

PATH = "/v1/audit/export?format="


def exported(api: ControlApi, query: str = "", **options: Any) -> list[dict[str, Any]]:
    """The audit events of an export, by the format that has all their fields."""
    answer = api.call("GET", PATH + "cloudevents" + query, **options)
    assert answer.status == 200, answer.raw
    return [each["data"] for each in map(json.loads, answer.raw.splitlines())]


def listed(api: ControlApi) -> list[dict[str, Any]]:
    """All events as `GET /v1/audit/events` shows them, the oldest first."""
    found: list[dict[str, Any]] = api.admin("GET", "/v1/audit/events?limit=1000")
    return found[::-1]


def without_texts(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ("query", "parameters")}


@pytest.mark.deep(stands_in="test_another_tenant_s_decisions_are_not_exported")
def test_every_decision_and_nothing_else_is_exported_in_the_order_of_the_log(
    either_tenant: ControlApi,
) -> None:
    filled(either_tenant)
    either_tenant.admin(
        "POST", "/v1/keys", {"name": "another", "scope": "read"}
    )  # a `change` entry
    found = exported(either_tenant)
    assert found == [without_texts(event) for event in listed(either_tenant)]
    assert [each["seq"] for each in found] == sorted(each["seq"] for each in found)
    assert {each["decision"] for each in found} == {"ALLOW", "DENY"}


@pytest.mark.parametrize("form", FORMATS)
def test_the_response_has_the_headers_of_a_streamed_file(api: ControlApi, form: str) -> None:
    event = api.evaluate(query="a secret question", user_id="u-9")
    answer = api.call("GET", PATH + form)
    assert answer.headers["Content-Type"] == FORMATS[form].media_type
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert answer.headers["Cache-Control"] == "no-store"
    name = answer.headers["Content-Disposition"].partition("decisions-0-")[2]
    assert name.endswith(f'.{FORMATS[form].suffix}"')
    assert event["event_id"].encode() in answer.raw
    assert b"u-9" in answer.raw
    assert b"secret question" not in answer.raw
    lines = answer.raw.split(FORMATS[form].end)
    assert lines.pop() == b""
    assert len(lines) == len(exported(api)) + bool(FORMATS[form].header)
    assert api.call("HEAD", PATH + form).raw == b""


def test_csv_has_a_header_and_a_row_for_each_decision(api: ControlApi) -> None:
    api.evaluate(source_id='=HYPERLINK("http://x";"y")', user_id="a,b")
    raw = api.call("GET", PATH + "csv").raw.decode()
    rows = list(csv.DictReader(io.StringIO(raw, newline="")))
    assert len(rows) == len(exported(api))
    assert rows[-1]["source_id"] == '\'=HYPERLINK("http://x";"y")'
    assert rows[-1]["user_id"] == "a,b"


def test_a_part_is_chosen_by_position_time_and_limit(either: ControlApi) -> None:
    filled(either)
    whole = [each["seq"] for each in exported(either)]
    middle, last = whole[5], whole[-1]

    def seqs(query: str) -> list[int]:
        return [each["seq"] for each in exported(either, query)]

    assert seqs(f"&from={middle}") == whole[5:]
    assert seqs(f"&to={middle}") == whole[:5]
    assert seqs(f"&from={middle}&to={last}&limit=2") == whole[5:7]
    assert seqs("&limit=1") == whole[:1]
    assert seqs(f"&limit={10**14}") == whole
    assert seqs("&from=2999-01-01T00:00:00Z") == seqs("&to=2000-01-01T00:00:00Z") == []
    # Page after page, as a client that comes back reads it.
    found, at = list[int](), 0
    while part := seqs(f"&from={at}&limit=4"):
        found += part
        at = part[-1] + 1
    assert found == whole
    recorded = alter(either, "SELECT entry FROM log_entries WHERE seq = :seq", seq=middle)
    time = json.loads(bytes(recorded[0].entry))["ts"]
    assert middle in seqs(f"&from={time}")
    assert middle not in seqs(f"&to={time}")


@pytest.mark.parametrize(
    "query",
    [
        *("OCSF", "json", "", "ocsf&limit=0", "ocsf&limit=-1", "ocsf&limit=x", "ocsf&limit=1.5"),
        *("ocsf&from=soon", "ocsf&format=ecs", "ocsf&limit=99999999999999999999", "ocsf&other=1"),
    ],
)
def test_other_requests_are_refused(api: ControlApi, query: str) -> None:
    assert api.call("GET", PATH + query).status == 422


def test_only_keys_that_may_read_can_export(api: ControlApi) -> None:
    assert api.call("GET", PATH + "ecs", key=api.new_key("read")).status == 200
    assert api.call("GET", PATH + "ecs", key=api.new_key("evaluate")).status == 403
    assert api.call("GET", PATH + "ecs", key=api.new_key("sidecar")).status == 403
    assert api.call("GET", PATH + "ecs", key=None).status == 401


def test_another_tenant_s_decisions_are_not_exported(api: ControlApi, tenant: ControlApi) -> None:
    api.evaluate(source_id="of-the-default-tenant")
    tenant.evaluate(source_id="of-the-other")
    assert [each["source_id"] for each in exported(tenant)] == ["of-the-other"]
    assert "of-the-other" not in {each["source_id"] for each in exported(api)}
    [line] = tenant.call("GET", PATH + "cloudevents").raw.splitlines()
    assert json.loads(line)["source"] == f"urn:sluice:{tenant.tenant_id}"
    # Of its own, every decision, in the log's order, and nothing else.
    tenant.admin("POST", "/v1/keys", {"name": "another", "scope": "read"})
    tenant.evaluate(source_id="handbook")
    found = exported(tenant)
    assert found == [without_texts(event) for event in listed(tenant)]
    assert [each["decision"] for each in found] == ["DENY", "ALLOW"]


@pytest.mark.deep(stands_in="test_another_tenant_s_decisions_are_not_exported")
def test_a_tenant_gets_its_own_decisions(either: ControlApi) -> None:
    filled(either, 3)
    other = either.admin("POST", "/v1/admin/tenants", {"name": "other"})
    key = other["admin_key"]
    either.evaluate(key=key, source_id="of-the-other")
    found = exported(either, key=key)
    assert [each["source_id"] for each in found] == ["of-the-other"]
    assert "of-the-other" not in {each["source_id"] for each in exported(either)}
    answer = either.call("GET", PATH + "cloudevents", key=key)
    assert json.loads(answer.raw)["source"] == f"urn:sluice:{other['tenant_id']}"


def test_an_erased_event_has_no_user_in_any_format(api: ControlApi) -> None:
    event = api.evaluate(user_id="u-is-erased", query="mine")["event_id"]
    api.evaluate(user_id="u-is-left")
    api.admin("POST", "/v1/audit/redact", {"event_ids": [event], "reason": "asked to"})
    for form in FORMATS:
        raw = api.call("GET", PATH + form).raw
        found = [each.encode() in raw for each in (event, "u-is-erased", "u-is-left")]
        assert found == [True, False, True], form


def test_an_erased_user_is_absent(either_tenant: ControlApi) -> None:
    event = either_tenant.evaluate(user_id="u-to-forget", query="mine")
    kept = either_tenant.evaluate(user_id="u-kept")
    wanted = {"event_ids": [event["event_id"]], "reason": "asked to"}
    either_tenant.admin("POST", "/v1/audit/redact", wanted)
    for form in FORMATS:
        raw = either_tenant.call("GET", PATH + form).raw
        assert event["event_id"].encode() in raw
        assert b"u-to-forget" not in raw
        assert b"u-kept" in raw
    found = {each["event_id"]: each for each in exported(either_tenant)}
    assert "user_id" not in found[event["event_id"]]
    assert found[kept["event_id"]]["user_id"] == "u-kept"


def test_personal_fields_are_left_out_on_request(either_tenant: ControlApi) -> None:
    filled(either_tenant, 3)
    assert all("user_id" in each for each in exported(either_tenant))
    assert all("user_id" not in each for each in exported(either_tenant, "&openings=none"))


def test_a_stream_is_compressed_where_that_is_accepted(api: ControlApi) -> None:
    answer = api.call("GET", PATH + "ocsf", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.raw) == api.call("GET", PATH + "ocsf").raw


def test_a_page_ends_after_so_many_entries_or_bytes(
    tenant: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tenant, 4)
    whole = exported(tenant)
    for entries, size in ((1, 1), (3, 10**9), (2000, 1), (2000, 2500)):
        monkeypatch.setattr(decisions, "PAGE_ENTRIES", entries)
        monkeypatch.setattr(decisions, "PAGE_BYTES", size)
        assert exported(tenant) == whole
    assert exported(tenant, f"&from={whole[1]['seq']}&limit=2") == whole[1:3]


@pytest.mark.deep(stands_in="test_a_page_ends_after_so_many_entries_or_bytes")
def test_pages_end_where_their_entries_are_large(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(either)
    whole = exported(either)
    for entries, size in ((1, 1), (3, 10**9), (2000, 1), (2000, 2500)):
        monkeypatch.setattr(decisions, "PAGE_ENTRIES", entries)
        monkeypatch.setattr(decisions, "PAGE_BYTES", size)
        assert exported(either) == whole
        assert exported(either, f"&from={whole[3]['seq']}&limit=5") == whole[3:8]


def paused_export(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """An export waits behind its first page: it sets the first event, and waits for the second."""
    paused, go_on = threading.Event(), threading.Event()

    async def rest(_: Pace) -> None:
        paused.set()
        await asyncio.to_thread(go_on.wait, 30)

    monkeypatch.setattr(Pace, "rest", rest)
    return paused, go_on


def test_events_recorded_during_an_export_are_not_in_it(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 2)
    filled(fresh, 5)
    before = listed(fresh)
    paused, go_on = paused_export(monkeypatch)
    connection, response = started(fresh)
    assert paused.wait(30)
    fresh.evaluate(query="meanwhile")
    go_on.set()
    found = [json.loads(line)["event"]["sequence"] for line in response.read().splitlines()]
    assert found == [each["seq"] for each in before]
    connection.close()


@pytest.mark.deep(stands_in="test_events_recorded_during_an_export_are_not_in_it")
def test_an_export_covers_the_log_as_of_its_start(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 5)
    filled(either)
    before = exported(either)

    def append() -> None:
        for _ in range(30):
            either.evaluate(query="meanwhile")

    writer = threading.Thread(target=append)
    writer.start()
    try:
        for _ in range(3):
            found = exported(either)
            seqs = [each["seq"] for each in found]
            assert found[: len(before)] == before
            assert seqs == sorted(set(seqs))
    finally:
        writer.join()
    assert exported(either) == [without_texts(event) for event in listed(either)]


def started(api: ControlApi, query: str = "") -> tuple[http.client.HTTPConnection, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    connection.request("GET", PATH + "ecs" + query, headers={"X-API-Key": api.admin_key})
    return connection, connection.getresponse()


def stalled(api: ControlApi) -> tuple[http.client.HTTPConnection, Any]:
    """An export whose reader has taken a line, of a log that is larger than what the buffers on
    the way hold."""
    for row in alter(api, "SELECT seq, entry FROM log_entries WHERE kind = 'decision'"):
        entry = orjson.loads(row.entry)
        entry["pub"]["response"]["reason"] = "long " * 200_000
        new = orjson.dumps(entry)
        statement = "UPDATE log_entries SET entry = :new, hash = :hash WHERE seq = :seq"
        alter(api, statement, new=new, hash=leaf_hash(new), seq=row.seq)
    connection, response = started(api)
    assert response.readline().endswith(b"}\n")
    return connection, response


def cut_off(response: Any) -> list[dict[str, Any]]:
    """The lines of an export that ended early: the connection closed without the response's end,
    and no line is half a one."""
    raw = bytearray()
    with pytest.raises(http.client.IncompleteRead):  # noqa: PT012  one loop
        while piece := response.read1(1 << 20):
            raw.extend(piece)
    assert not raw or raw.endswith(b"\n")
    return [json.loads(line) for line in raw.splitlines()]


@pytest.mark.deep(
    stands_in="tests/control_api/audit/test_export_log.py::test_a_reader_that_hangs_up_ends_the_export"
)
def test_a_reader_that_hangs_up_ends_the_export(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 1)
    filled(fresh, 20)
    for _ in range(MAX_EXPORTS + 1):
        connection, response = stalled(fresh)
        response.close()
        connection.close()
    until("an export is free", lambda: fresh.call("GET", PATH + "ecs&limit=1").status == 200)
    assert fresh.evaluate()["decision"] == "ALLOW"


def test_more_exports_than_allowed_are_refused_with_503(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 1)
    # All of them are to wait at once, however long it takes to begin the last.
    monkeypatch.setattr(sending, "STALL_SECONDS", 10 * PATIENCE)
    filled(fresh, 20)
    held = [stalled(fresh) for _ in range(MAX_EXPORTS)]
    for query in (PATH + "ecs", "/v1/audit/export"):
        answer = fresh.call("GET", query)
        assert answer.status == 503
        assert answer.headers["Retry-After"]
    for connection, response in held:
        assert response.read().count(b"\n") == 19
        connection.close()


def test_a_purge_of_what_is_still_to_be_read_ends_the_export(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 1)
    filled(fresh, 20)
    connection, response = stalled(fresh)
    size = alter(fresh, "SELECT size FROM log_heads")[0].size
    # What a purge commits first; no row is gone yet.
    values = "'default', 0, :size, x'00', x'00', x'00', 0, 1, 0, '', NULL, NULL"
    alter(fresh, f"INSERT INTO purges VALUES ({values})", size=size)
    assert len(cut_off(response)) < 19
    assert "retention removed the entries" in caplog.text
    connection.close()


async def test_an_export_stops_before_the_next_page_when_its_key_is_gone(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 1)
    told, lines = iter((None, "the key is gone")), list[bytes]()

    async def why_stop() -> str | None:
        return next(told)

    async with opened(sqlite_url) as world:
        for _ in range(3):
            await world.log.append(TENANT, decision())
        form = FORMATS["ecs"]
        export = await decisions.open_decisions(world.store, TENANT, Wanted(), form)
        with pytest.raises(ExportStopped, match="the key is gone; continue with `from=1`"):  # noqa: PT012
            async for piece in export.pieces(why_stop):
                lines.append(piece)
    assert len(lines) == 1


def test_a_revoked_key_reads_no_further(
    tenant: ControlApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tenant, 5)
    made = tenant.admin("POST", "/v1/keys", {"name": "auditor", "scope": "admin"})
    monkeypatch.setattr(decisions, "PAGE_ENTRIES", 4)  # the first page has a decision or more
    paused, go_on = paused_export(monkeypatch)
    monkeypatch.setattr(tenant, "admin_key", made["key"])
    connection, response = started(tenant)
    assert paused.wait(30)
    tenant.admin("DELETE", f"/v1/keys/{made['key_id']}")
    go_on.set()
    assert len(cut_off(response)) < 5
    assert "not valid any longer; continue with `from=" in caplog.text
    connection.close()


@pytest.mark.deep(
    stands_in="tests/control_api/audit/test_export_log.py::test_a_purged_log_begins_at_its_anchor"
)
def test_a_purged_log_begins_at_its_anchor(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    filled(either)
    either.time.ahead = 400 * 86_400
    either.restart()
    until("a purge", lambda: either.admin("GET", "/v1/audit/retention")["anchor"])
    first = either.admin("GET", "/v1/audit/retention")["anchor"]["tree_size"]
    either.evaluate(query="later")
    answer = either.call("GET", PATH + "cloudevents&from=1")
    # Asked for what is gone, it gives what is left, and the name says where that begins.
    assert f'"decisions-{first}-' in answer.headers["Content-Disposition"]
    assert [json.loads(line)["data"]["seq"] >= first for line in answer.raw.splitlines()] == [True]


DAMAGE = {
    "a byte": b'{"log":"another',
    "no JSON": b"\xff\x00\xfe",
    "nothing": b"",
    "another entry": b"{}",
}


@tiers.sampled("database")
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_entry_ends_the_export_behind_the_one_before(
    either: ControlApi, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(either)
    whole = exported(either)
    seq = whole[4]["seq"]
    alter(either, "UPDATE log_entries SET entry = :new WHERE seq = :seq", new=DAMAGE[what], seq=seq)
    connection, response = started(either)
    assert [each["event"]["sequence"] for each in cut_off(response)] == [
        each["seq"] for each in whole[:4]
    ]
    assert f"entry {seq} is damaged: verify the log; `from={seq + 1}`" in caplog.text
    connection.close()
    assert exported(either, f"&from={seq + 1}") == whole[5:]


def test_a_changed_or_missing_decision_ends_the_export(
    either: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    filled(either, 3)
    seq = exported(either)[1]["seq"]
    [row] = alter(either, "SELECT entry FROM log_entries WHERE seq = :seq", seq=seq)
    changed = bytes(row.entry).replace(b'"ALLOW"', b'"DENY"')
    assert changed != bytes(row.entry)
    alter(either, "UPDATE log_entries SET entry = :new WHERE seq = :seq", new=changed, seq=seq)
    connection, response = started(either)
    assert len(cut_off(response)) == 1
    connection.close()
    # As little as one whose openings can't be read.
    old = {"new": bytes(row.entry), "seq": seq}
    alter(either, "UPDATE log_entries SET entry = :new WHERE seq = :seq", **old)
    alter(either, "UPDATE openings SET openings = :new WHERE seq = :seq", new=b"no JSON", seq=seq)
    connection, response = started(either)
    assert len(cut_off(response)) == 1
    connection.close()
    alter(either, "DELETE FROM log_entries WHERE seq = :seq", seq=seq)
    connection, response = started(either)
    assert len(cut_off(response)) == 1
    assert f"entry {seq} is missing" in caplog.text
    connection.close()
    assert [each["seq"] for each in exported(either, f"&from={seq + 1}")] == [seq + 1]


@pytest.mark.deep(stands_in="test_a_changed_or_missing_decision_ends_the_export")
def test_damaged_openings_end_the_export(either: ControlApi) -> None:
    filled(either, 3)
    seq = exported(either)[1]["seq"]
    alter(either, "UPDATE openings SET openings = :new WHERE seq = :seq", new=b"no JSON", seq=seq)
    connection, response = started(either)
    assert len(cut_off(response)) == 1
    connection.close()


@pytest.mark.deep(stands_in="test_a_changed_or_missing_decision_ends_the_export")
def test_a_missing_entry_ends_the_export(
    either: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    filled(either)
    whole = exported(either)
    seq = whole[4]["seq"]
    alter(either, "DELETE FROM log_entries WHERE seq = :seq", seq=seq)
    connection, response = started(either)
    assert len(cut_off(response)) == 4
    assert f"entry {seq} is missing" in caplog.text
    connection.close()
    assert exported(either, f"&from={seq + 1}") == whole[5:]
    # Those before it can be had without a broken response.
    assert exported(either, f"&to={seq}") == exported(either, "&limit=4") == whole[:4]


@pytest.mark.deep(
    stands_in="tests/control_api/log/formats/test_formats.py::test_a_forwarded_denial_of_the_log_is_marked_in_every_format"
)
def test_a_denial_that_was_forwarded_is_marked(fresh: ControlApi) -> None:
    fresh.evaluate(source_id="payroll")
    [row] = alter(fresh, "SELECT seq, entry FROM log_entries WHERE kind = 'decision'")
    entry = orjson.loads(row.entry)
    entry["pub"]["response"]["reason"] = REPORT_PREFIX + entry["pub"]["response"]["reason"]
    new = orjson.dumps(entry)
    values = {"new": new, "hash": leaf_hash(new), "seq": row.seq}
    statement = "UPDATE log_entries SET entry = :new, hash = :hash WHERE seq = :seq"
    asyncio.run(sql(url_of(fresh), statement, **values))
    [found] = exported(fresh)
    assert found["decision"] == "DENY"
    assert found["reason"].startswith("report mode, forwarded: ")
