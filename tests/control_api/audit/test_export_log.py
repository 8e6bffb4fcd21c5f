"""The export of a log, over HTTP and on both databases: what is stored arrives as it is."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import json
import threading
from collections.abc import AsyncGenerator
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from control_api import purge
from control_api.audit.bundle import MAX_EXPORTS
from control_api.edge import sending
from control_api.log.export import file
from control_api.log.export.ending import ExportStopped
from control_api.log.export.place import Moment
from control_api.log.export.rows import Pace
from deploy.commands.verify.check import CheckOptions, verify_file
from policies.ground.canonical import unb64
from policies.ground.signing import KeyRing, Signer
from policies.trail.entry import StoredRow
from policies.trail.log_file.file import LogFileReader
from policies.trail.log_file.lines import (
    MEDIA_TYPE,
    CheckpointLine,
    DamagedLine,
    EntryLine,
    ErasureLine,
    FrontierLine,
    HeaderLine,
    Line,
    PolicyLine,
    ProofLine,
)
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.verify import Verifier
from tests.control_api.store.databases import sqlite_url
from tests.second_verifier import verifier as second_verifier
from tests.support.control_api import ControlApi, running_control_api
from tests.support.open_store import TENANT, decision, opened, sql
from tests.support.waiting import until

__all__ = ["sqlite_url"]  # a fixture

PATH = "/v1/audit/export"


def lines_of(raw: bytes) -> list[Line]:
    reader = LogFileReader()
    lines = list(reader.feed(raw))
    reader.finish()
    return lines


def exported(api: ControlApi, query: str = "", **options: Any) -> list[Line]:
    answer = api.call("GET", PATH + query, **options)
    assert answer.status == 200, answer.raw
    return lines_of(answer.raw)


def header_of(lines: list[Line]) -> HeaderLine:
    header = lines[0]
    assert isinstance(header, HeaderLine)
    return header


def entries_of(lines: list[Line]) -> list[EntryLine]:
    return [line for line in lines if isinstance(line, EntryLine)]


def seqs_of(lines: list[Line]) -> list[int]:
    return [orjson.loads(line.entry)["seq"] for line in entries_of(lines)]


def url_of(api: ControlApi) -> str:
    given = api.environ.get("SLUICE_DATABASE_URL")
    return given or f"sqlite+aiosqlite:///{api.directory / 'data' / 'sluice.db'}"


def alter(api: ControlApi, statement: str, **values: Any) -> list[Any]:
    """What someone with the database's password does."""
    return asyncio.run(sql(url_of(api), statement, **values))


def filled(api: ControlApi, events: int = 12) -> ControlApi:
    for number in range(events):
        verdict = {"source_id": "payroll"} if number % 3 == 0 else {}
        api.evaluate(query=f"question {number}", **verdict)
    return api


@pytest.mark.deep(stands_in="test_a_part_that_ends_before_an_erasure_includes_that_erasure")
def test_the_whole_log_arrives_and_verifies(either: ControlApi) -> None:
    lines = exported(filled(either))
    header = header_of(lines)
    assert header.first_kept == header.first == 0
    assert header.until == len(entries_of(lines)) == len(seqs_of(lines))
    verifier = Verifier(header.log)
    assert verifier.feed_all(
        StoredRow(seq, line.entry, openings=line.openings)
        for seq, line in enumerate(entries_of(lines))
    ), verifier.finish()
    stored = alter(either, "SELECT entry FROM log_entries ORDER BY seq")
    assert [bytes(row.entry) for row in stored] == [line.entry for line in entries_of(lines)]


def test_openings_are_exported_unless_left_out_on_request(either_tenant: ControlApi) -> None:
    filled(either_tenant, 2)
    opened = [orjson.loads(line.openings or b"") for line in entries_of(exported(either_tenant))]
    assert any(each.get("query", [None, ""])[1] == "question 1" for each in opened)
    answer = either_tenant.call("GET", f"{PATH}?openings=none")
    assert b"question 1" not in answer.raw
    assert not header_of(lines_of(answer.raw)).with_openings


def test_each_cited_document_is_there_once_and_before(either_tenant: ControlApi) -> None:
    lines = exported(filled(either_tenant))
    seen = set[str]()
    for line in lines:
        if isinstance(line, PolicyLine):
            digest = hashlib.sha256(line.document).hexdigest()
            assert digest not in seen
            seen.add(digest)
        if isinstance(line, EntryLine) and b'"kind":"decision"' in line.entry:
            assert orjson.loads(line.entry)["pub"]["facts"]["role"] in seen
    assert seen


def test_a_part_begins_with_the_tree_of_the_entries_before_it(either_tenant: ControlApi) -> None:
    whole = entries_of(exported(filled(either_tenant)))
    for first, end in ((1, 5), (5, 9), (8, len(whole)), (7, 7)):
        lines = exported(either_tenant, f"?from={first}&to={end}")
        assert seqs_of(lines) == list(range(first, end))
        tree = Frontier()
        for line in whole[:first]:
            tree.append(leaf_hash(line.entry))
        assert lines[1] == FrontierLine(first, tree.hashes)
    lines = exported(either_tenant, "?from=3&to=9&limit=2")
    assert (seqs_of(lines), header_of(lines).until) == ([3, 4], 5)
    assert seqs_of(exported(either_tenant, "?from=3&to=5&limit=9")) == [3, 4]
    # A bound may be a time, and lie behind the end.
    at = orjson.loads(whole[5].entry)["ts"]
    assert seqs_of(exported(either_tenant, f"?from={at}"))[0] == 5
    assert seqs_of(exported(either_tenant, f"?to={at}"))[-1] == 4
    for empty in ("from=2999-01-01T00:00:00Z", "to=2000-01-01T00:00:00Z"):
        assert seqs_of(exported(either_tenant, f"?{empty}")) == []
    assert header_of(exported(either_tenant, "?from=999999")).first == len(whole)


async def test_only_a_file_with_a_requested_end_is_marked_as_a_part(sqlite_url: str) -> None:
    async with opened(sqlite_url) as world:
        for _ in range(3):
            await world.log.append(TENANT, decision())
        ring, now = KeyRing(Signer.generate()), world.store.clock.now()

        async def is_part(first: Any = None, until: Any = None, limit: int | None = None) -> bool:
            wanted = file.Wanted(first, until, limit=limit)
            return (await file.open_export(world.store, TENANT, wanted, ring)).header.part

        # What was asked for is all there, whatever the log records later.
        for ended in ((None, 3), (None, Moment(now)), (1, None, 2)):
            assert await is_part(*ended), ended
        # Beyond what the log had, entries could still come that were asked for.
        for open_ended in ((1,), (None, 4), (None, Moment(now + 3_600_000_000)), (1, None, 3)):
            assert not await is_part(*open_ended), open_ended


@pytest.mark.deep(stands_in="test_a_part_begins_with_the_tree_of_the_entries_before_it")
def test_a_limit_ends_the_part(either_tenant: ControlApi) -> None:
    whole = seqs_of(exported(filled(either_tenant)))
    for query, part in (("?limit=4", whole[:4]), ("?from=3&to=9&limit=2", whole[3:5])):
        lines = exported(either_tenant, query)
        assert seqs_of(lines) == part
        assert header_of(lines).until == part[-1] + 1
    assert seqs_of(exported(either_tenant, "?from=3&to=5&limit=9")) == whole[3:5]


@pytest.mark.deep(stands_in="test_a_part_begins_with_the_tree_of_the_entries_before_it")
def test_bounds_may_be_times(either_tenant: ControlApi) -> None:
    lines = exported(filled(either_tenant))
    times = [orjson.loads(line.entry)["ts"] for line in entries_of(lines)]
    first = times.index(times[5])
    assert seqs_of(exported(either_tenant, f"?from={times[5]}"))[0] == first
    assert seqs_of(exported(either_tenant, f"?to={times[5]}"))[-1] == first - 1
    assert seqs_of(exported(either_tenant, "?from=2999-01-01T00:00:00Z")) == []
    assert seqs_of(exported(either_tenant, "?to=2000-01-01T00:00:00Z")) == []
    assert header_of(exported(either_tenant, "?from=999999")).first == len(times)


@pytest.mark.parametrize(
    "query", ["?from=-1", "?from=soon", "?to=1.5", "?openings=some", "?limit=0", "?from=1&from=2"]
)
def test_other_bounds_are_refused(api: ControlApi, query: str) -> None:
    assert api.call("GET", PATH + query).status == 422


def test_only_keys_that_may_read_can_export_the_log(api: ControlApi) -> None:
    # Openings show what events and lineage actions show, which every `read` key may list.
    assert api.call("GET", PATH, key=api.new_key("read")).status == 200
    assert api.call("GET", PATH, key=api.new_key("evaluate")).status == 403
    assert api.call("GET", PATH, key=api.new_key("sidecar")).status == 403
    assert api.call("GET", PATH, key=None).status == 401


def test_the_response_has_the_headers_of_a_streamed_file(api: ControlApi) -> None:
    answer = api.call("GET", PATH)
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="log-0-')
    head = api.call("HEAD", PATH)
    assert (head.status, head.raw) == (200, b"")


@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip;q=0.5", "x-gzip", "GZIP"])
def test_gzip_is_used_where_it_is_accepted(api: ControlApi, accepted: str) -> None:
    answer = api.call("GET", PATH, headers={"Accept-Encoding": accepted})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert entries_of(lines_of(gzip.decompress(answer.raw)))


def test_zstd_is_preferred(api: ControlApi) -> None:
    zstandard = pytest.importorskip("zstandard", reason="the extra `zstd` is not installed")
    answer = api.call("GET", PATH, headers={"Accept-Encoding": "gzip, zstd"})
    assert answer.headers["Content-Encoding"] == "zstd"
    raw = zstandard.ZstdDecompressor().decompressobj().decompress(answer.raw)
    assert entries_of(lines_of(raw))


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "*", "gzip;q=x"])
def test_nothing_is_compressed_without_a_request(api: ControlApi, accepted: str) -> None:
    answer = api.call("GET", PATH, headers={"Accept-Encoding": accepted})
    assert "Content-Encoding" not in answer.headers
    assert entries_of(lines_of(answer.raw))


DAMAGE = {
    "a byte": b'{"log":"another',
    "a line feed": b'{"a":\n1}\n{"entry":{}}',
    "no JSON": b"\xff\x00\xfe",
    "nothing": b"",
    "large": b"x" * 100_000,
    "another end": b'{"a":1},"openings":{}}',
}
DAMAGED_OPENINGS = [b"{\n}", b'{"user_id":["",""],"openings":{}}', b"no JSON"]


@pytest.mark.deep(stands_in="test_damaged_rows_are_exported_whatever_their_fault")
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_exported_unchanged(either: ControlApi, what: str) -> None:
    filled(either)
    new = DAMAGE[what]
    alter(either, "UPDATE log_entries SET entry = :new WHERE seq = 3", new=new)
    lines = exported(either)
    rows = [line for line in lines if isinstance(line, EntryLine | DamagedLine)]
    assert rows[3].entry == new
    assert isinstance(rows[3], DamagedLine) == (b"\n" in new)
    assert len(rows) == header_of(lines).until
    assert seqs_of([*rows[:3], *rows[4:]]) == [*range(3), *range(4, len(rows))]


def test_damaged_rows_are_exported_whatever_their_fault(
    api: ControlApi, tenant: ControlApi
) -> None:
    filled(tenant, 12)
    of_it = f"tenant_id = '{tenant.tenant_id}' AND"
    alter(api, f"UPDATE log_entries SET entry = 'text' WHERE {of_it} seq = 2")
    alter(api, f"UPDATE log_entries SET entry = 12 WHERE {of_it} seq = 3")
    for seq, new in enumerate(DAMAGE.values(), 4):
        alter(
            api, f"UPDATE log_entries SET entry = :new WHERE {of_it} seq = :seq", new=new, seq=seq
        )
    (row,) = alter(api, f"SELECT max(seq) AS seq FROM openings WHERE {of_it} true")
    changed = f"UPDATE openings SET openings = :new WHERE {of_it} seq = :seq"
    for seq, new in enumerate(DAMAGED_OPENINGS, row.seq - 2):
        alter(api, changed, new=new, seq=seq)
    rows = [each for each in exported(tenant) if isinstance(each, EntryLine | DamagedLine)]
    assert [each.entry for each in rows[2:10]] == [b"text", b"12", *DAMAGE.values()]
    for each in rows[2:10]:
        assert isinstance(each, DamagedLine) == (b"\n" in (each.entry or b""))
    assert [each.openings for each in rows[row.seq - 2 :]] == DAMAGED_OPENINGS
    split = [isinstance(each, DamagedLine) for each in rows[row.seq - 2 :]]
    assert split == [True, True, False]
    alter(api, f"DELETE FROM log_entries WHERE {of_it} seq >= 2 AND seq < 10")
    lines = exported(tenant)
    assert seqs_of(lines)[:3] == [0, 1, 10]
    # The tree before a later part can't be computed any longer, and a wrong one must not be given.
    answer = tenant.call("GET", f"{PATH}?from=12")
    assert (answer.status, "export the whole log" in answer.body["message"]) == (409, True)


@pytest.mark.deep(stands_in="test_damaged_rows_are_exported_whatever_their_fault")
@pytest.mark.parametrize("new", DAMAGED_OPENINGS)
def test_damaged_openings_are_exported_unchanged(either: ControlApi, new: bytes) -> None:
    filled(either, 3)
    (row,) = alter(either, "SELECT max(seq) AS seq FROM openings")
    alter(either, "UPDATE openings SET openings = :new WHERE seq = :seq", new=new, seq=row.seq)
    lines = [line for line in exported(either) if isinstance(line, EntryLine | DamagedLine)]
    assert lines[row.seq].openings == new
    assert isinstance(lines[row.seq], DamagedLine) == (new != b"no JSON")


@pytest.mark.deep(stands_in="test_damaged_rows_are_exported_whatever_their_fault")
def test_missing_rows_are_missing_in_the_file(either: ControlApi) -> None:
    filled(either)
    alter(either, "DELETE FROM log_entries WHERE seq IN (2, 3)")
    lines = exported(either)
    assert seqs_of(lines) == [0, 1, *range(4, header_of(lines).until)]
    # The tree before a later part can't be computed any longer, and a wrong one must not be given.
    answer = either.call("GET", f"{PATH}?from=6")
    assert answer.status == 409
    assert "export the whole log" in answer.body["message"]


@pytest.mark.deep(stands_in="test_damaged_rows_are_exported_whatever_their_fault")
def test_a_row_of_another_sqlite_type_is_exported_as_bytes(fresh: ControlApi) -> None:
    filled(fresh)
    alter(fresh, "UPDATE log_entries SET entry = 'text' WHERE seq = 2")
    alter(fresh, "UPDATE log_entries SET entry = 12 WHERE seq = 3")
    found = [line.entry for line in exported(fresh) if isinstance(line, EntryLine | DamagedLine)]
    assert found[2:4] == [b"text", b"12"]


@pytest.mark.deep(stands_in="test_an_erasure_while_an_export_runs_is_no_finding")
def test_an_export_covers_the_log_as_of_its_start(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 2)
    filled(either)
    connection, response = started(either)
    end = json.loads(response.readline())["to"]
    either.evaluate(query="later")
    raw = response.read()
    connection.close()
    assert raw.count(b'{"entry":') == end
    assert b"later" not in raw
    assert seqs_of(exported(either))[-1] == end


def started(api: ControlApi, query: str = "") -> tuple[http.client.HTTPConnection, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    connection.request("GET", PATH + query, headers={"X-API-Key": api.admin_key})
    return connection, connection.getresponse()


def stalled(api: ControlApi) -> Any:
    """An export whose reader has taken the header, in a log that is larger than what the buffers on
    the way hold."""
    rows = alter(api, "SELECT seq, entry FROM log_entries WHERE seq = 1")
    alter(
        api,
        "UPDATE log_entries SET entry = :new WHERE seq > 4",
        new=bytes(rows[0].entry) + b" " * 900_000,
    )
    connection, response = started(api)
    response.readline()
    return connection, response


def test_a_reader_that_hangs_up_ends_the_export(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 1)
    filled(fresh, 20)
    for _ in range(MAX_EXPORTS + 1):
        connection, response = stalled(fresh)
        response.close()
        connection.close()
    # Each has given its place back.
    until("an export is free", lambda: fresh.call("GET", PATH + "?to=2").status == 200)
    assert fresh.evaluate()["decision"] == "ALLOW"


async def test_a_response_whose_reader_takes_nothing_is_aborted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "STALL_SECONDS", 0.1)
    ended, aborted = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b" " * sending.WRITE
        finally:
            ended.set()

    async def handle(request: web.Request) -> web.StreamResponse:
        response = await sending.send(request, web.StreamResponse(), endless())
        if request.transport is None or request.transport.is_closing():
            aborted.set()
        return response

    app = web.Application()
    app.router.add_get("/", handle)
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(ended.wait(), aborted.wait())
        finally:
            writer.close()  # else the server would wait for a stream that never ends
    assert "gave up a stream" in caplog.text
    assert reader is not None


@pytest.mark.deep(stands_in="test_a_response_whose_reader_takes_nothing_is_aborted")
def test_an_export_is_aborted_when_its_reader_takes_nothing(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 1)
    monkeypatch.setattr(sending, "STALL_SECONDS", 0.2)
    filled(fresh, 50)
    held = [stalled(fresh) for _ in range(MAX_EXPORTS)]
    until("all are given up", lambda: caplog.text.count("gave up a stream") == MAX_EXPORTS)
    assert fresh.call("GET", PATH + "?to=2").status == 200
    for connection, response in held:
        with pytest.raises((http.client.HTTPException, OSError)):
            response.read()
        connection.close()


@pytest.mark.deep(
    stands_in="tests/control_api/audit/test_export_decisions.py::test_more_exports_than_allowed_are_refused_with_503"
)
def test_more_exports_than_allowed_are_refused_with_503(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 1)
    filled(fresh, 20)
    held = [stalled(fresh) for _ in range(MAX_EXPORTS)]
    answer = fresh.call("GET", PATH)
    assert answer.status == 503
    assert answer.headers["Retry-After"]
    for connection, response in held:
        assert lines_of_rest(response)
        connection.close()


def lines_of_rest(response: Any) -> bytes:
    raw: bytes = response.read()
    assert raw.rpartition(b"\n{")[2].startswith(b'"end":true')
    return raw


def cut_off(response: Any) -> str:
    """Why an export says that it ended early. The connection must have closed without the
    response's end."""
    raw = bytearray()

    def read_on() -> None:
        while piece := response.read1(1 << 20):
            raw.extend(piece)

    with pytest.raises(http.client.IncompleteRead):
        read_on()
    reason: str = json.loads(raw[raw.rindex(b'{"truncated"') :])["truncated"]
    return reason


async def test_a_purge_between_two_pages_ends_the_export(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 1)

    async def never() -> None:
        return None

    async with opened(sqlite_url) as world:
        for _ in range(6):
            await world.log.append(TENANT, decision())
        ring = KeyRing(Signer.generate())
        pieces = (await file.open_export(world.store, TENANT, file.Wanted(), ring)).pieces(never)
        raw = await anext(pieces)
        values = "'default', 0, 6, x'00', x'00', x'00', 0, 1, 0, '', NULL, NULL"
        await world.rows(f"INSERT INTO purges VALUES ({values})")
        with pytest.raises(ExportStopped, match="retention removed the entries"):  # noqa: PT012
            async for piece in pieces:
                raw += piece
    assert raw.count(b'{"entry":') < 6
    assert b'{"truncated"' in raw


@pytest.mark.deep(stands_in="test_a_purge_between_two_pages_ends_the_export")
def test_a_purge_of_what_is_still_to_be_read_ends_the_export(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 1)
    filled(fresh, 20)
    connection, response = stalled(fresh)
    size = alter(fresh, "SELECT size FROM log_heads")[0].size
    # What a purge commits first; no row is gone yet.
    values = "'default', 0, :size, x'00', x'00', x'00', 0, 1, 0, '', NULL, NULL"
    alter(fresh, f"INSERT INTO purges VALUES ({values})", size=size)
    assert "retention removed the entries" in cut_off(response)
    connection.close()


def test_a_revoked_key_reads_no_further(fresh: ControlApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 1)
    filled(fresh, 20)
    made = fresh.admin("POST", "/v1/keys", {"name": "auditor", "scope": "admin"})
    monkeypatch.setattr(fresh, "admin_key", made["key"])
    connection, response = stalled(fresh)
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    assert "not valid any longer; continue with `from=" in cut_off(response)
    connection.close()


def test_a_purged_log_begins_at_its_anchor(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    filled(either)
    either.time.ahead = 400 * 86_400
    either.restart()

    def purged() -> Any:
        return either.admin("GET", "/v1/audit/retention")["anchor"]

    until("a purge", purged)
    anchor = purged()
    # Until a checkpoint covers the purge, no file would verify.
    until("a checkpoint", lambda: either.call("GET", PATH).status == 200)
    lines = exported(either)
    header, frontier, note = lines[:3]
    assert isinstance(header, HeaderLine)
    assert header.first_kept == header.first == anchor["tree_size"]
    assert isinstance(frontier, FrontierLine)
    assert Frontier(frontier.size, frontier.hashes).root().hex() == anchor["root_hash"]
    assert isinstance(note, CheckpointLine)
    assert note.note.split("\n")[1] == str(header.first)
    # Asked for what is gone, it gives what is left, and says so.
    assert header_of(exported(either, "?from=1")).first == header.first
    either.evaluate(query="later")
    answer = either.call("GET", f"{PATH}?format=cloudevents&from=1")
    assert f'"decisions-{header.first}-' in answer.headers["Content-Disposition"]
    (line,) = answer.raw.splitlines()
    assert json.loads(line)["data"]["seq"] >= header.first


@pytest.mark.deep(stands_in="test_a_part_that_ends_before_an_erasure_includes_that_erasure")
def test_each_checkpoint_is_placed_where_it_covers_all_entries_before_it(
    either_tenant: ControlApi,
) -> None:
    filled(either_tenant)
    wanted = len(entries_of(exported(either_tenant)))

    until("a checkpoint", lambda: covered(either_tenant) >= wanted)
    lines = exported(either_tenant)
    assert checkpoints_cover_what_came_before(lines)
    # A part ends with the proof of its last entry in the first checkpoint after it.
    *body, proof, note, _ = exported(either_tenant, f"?to={wanted - 1}")
    last = entries_of(body)[-1]
    assert isinstance(proof, ProofLine)
    assert isinstance(note, CheckpointLine)
    _, size, root = note.note.split("\n")[:3]
    leaf = leaf_hash(last.entry)
    assert tree_proofs.proves_inclusion(leaf, wanted - 2, int(size), proof.hashes, unb64(root))


@pytest.mark.deep(
    stands_in="tests/deploy/commands/verify/test_files.py::test_a_true_part_and_a_later_checkpoint_can_t_be_compared"
)
def test_a_part_cut_at_a_checkpoint_is_no_rollback_to_a_later_one(
    tmp_path: Path,
) -> None:
    with running_control_api(tmp_path / "api", SLUICE_CHECKPOINT_SECONDS="1") as api:
        _compare_with_a_later_checkpoint(api, tmp_path)


def _compare_with_a_later_checkpoint(api: ControlApi, tmp_path: Path) -> None:
    filled(api)
    until("a checkpoint", lambda: covered(api) > 0)
    cut = covered(api)
    early, whole = (api.call("GET", PATH + query).raw for query in (f"?to={cut}", ""))
    api.evaluate(query="behind it")
    until("a larger one", lambda: covered(api) > cut)
    part = api.call("GET", f"{PATH}?to={cut}").raw
    larger = covered(api)
    api.evaluate(query="later still")
    until("a later one", lambda: covered(api) > larger)
    later = api.call("GET", "/v1/audit/checkpoint").raw.decode()

    def compared(name: str, file: bytes) -> tuple[int, list[str]]:
        path = tmp_path / name
        path.write_bytes(file)
        done = verify_file(lambda: path.open("rb"), name, CheckOptions(known=[later]), again=True)
        return done.exit_code, [each.reason for each in done.findings]

    # The part shows that the log goes on behind it, so that it says nothing of the log's end. One
    # that was made before it went on can only say so.
    assert compared("part", part) == (2, [])
    assert compared("early", early) == (2, [])
    assert len(lines_of(early)) < len(lines_of(part))
    # The second verifier, which compares with no other checkpoint, takes the part as valid too.
    assert not second_verifier.verify(BytesIO(part), second_verifier.Pins()).findings
    # What was all that the log had may be an older copy, or a log that lost what followed.
    assert compared("whole", whole) == (1, ["log_behind_checkpoint"])


def checkpoints_cover_what_came_before(lines: list[Line]) -> bool:
    """Whether there are any, and each is of just the entries before it."""
    sizes, at = list[tuple[int, int]](), header_of(lines).first
    for line in lines:
        at += isinstance(line, EntryLine)
        if isinstance(line, CheckpointLine):
            sizes.append((int(line.note.split("\n")[1]), at))
    return bool(sizes) and all(size == before for size, before in sizes)


def verdict(lines: bytes, path: Path) -> Any:
    """What `sluice verify` says of a file."""
    path.write_bytes(lines)
    done = verify_file(lambda: path.open("rb"), "the file", CheckOptions(), again=True)
    assert done.valid, [each.text() for each in done.findings]
    return done.to_wire()["erased"]


def erased(api: ControlApi, user_id: str) -> int:
    body = {"user_id": user_id, "reason": "asked"}
    seq: int = api.admin("POST", "/v1/audit/redact", body)["seq"]
    return seq


def test_a_part_that_ends_before_an_erasure_includes_that_erasure(
    either_tenant: ControlApi, tmp_path: Path
) -> None:
    filled(either_tenant, 6)
    end = len(entries_of(exported(either_tenant)))
    either_tenant.evaluate(user_id="bob")
    seq = erased(either_tenant, "ann")
    # Not covered yet, or covered already: either way a reader can tell it from a silent removal.
    counted = verdict(either_tenant.call("GET", f"{PATH}?to={end}").raw, tmp_path / "early")
    assert (counted["entries"], counted["behind_the_file"]) == (6, 6)
    until("a checkpoint", lambda: covered(either_tenant) > seq)
    answer = either_tenant.call("GET", f"{PATH}?to={end}")
    assert verdict(answer.raw, tmp_path / "part") == {**counted, "unproven": 0}
    *_, proof, note, erasure, _ = lines_of(answer.raw)
    assert isinstance(proof, ProofLine)
    assert isinstance(note, CheckpointLine)
    assert isinstance(erasure, ErasureLine)
    assert orjson.loads(erasure.entry)["seq"] == seq
    assert checkpoints_cover_what_came_before(exported(either_tenant))
    # A part without openings needs none; the whole log has the entry itself.
    for query in (f"?to={end}&openings=none", ""):
        assert not [x for x in exported(either_tenant, query) if isinstance(x, ErasureLine)]


def test_an_erasure_while_an_export_runs_is_no_finding(
    either: ControlApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "PAGE_ROWS", 2)
    filled(either, 6)
    paused, go_on = threading.Event(), threading.Event()

    async def rest(_: Pace) -> None:
        paused.set()
        await asyncio.to_thread(go_on.wait, 30)

    monkeypatch.setattr(Pace, "rest", rest)
    connection, response = started(either)
    assert paused.wait(30)
    erased(either, "ann")
    go_on.set()
    counted = verdict(response.read(), tmp_path / "log")
    connection.close()
    # The first page was read before.
    assert 0 < counted["behind_the_file"] == counted["entries"] <= 6


def covered(api: ControlApi) -> int:
    notes = api.admin("GET", "/v1/audit/checkpoints")
    return max((each["size"] for each in notes), default=0)
