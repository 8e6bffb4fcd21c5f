"""A sidecar of the previous minor version at today's control API: recorded requests are replayed on
the database that they were recorded with, and an old sidecar finds in each answer what it reads."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policies.ground.canonical import unb64
from policies.ground.signing import receipt_message, verify
from sidecar.spool.storage.frames import Header, frame_bytes, header_bytes
from tests.compatibility.exchanges import RECORDED, Exchange, missing, read, restore
from tests.support.control_api_process import ControlApiProcess, call

# The beginning of a segment, as 0.1 writes it: a header, and a frame that another one follows.
OLD_HEADER = (
    b"sluice\x00\x01\x00\x00\x00> \x83/f"
    b'{"first":3,"instance":"i1","prev":"AAAA","source":"sidecar-1"}'
)
OLD_FRAME = b'\x00\x00\x00\x07\xd6\x80F\xdd\x80\x00\x00\x00\x00\x00\x00\x03{"a":1}'
VERSIONS = sorted(path.name for path in RECORDED.iterdir())


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def control(version: str, tmp_path: Path) -> Iterator[ControlApiProcess]:
    """Today's control API on the previous version's database, upgraded by its start."""
    restore(version, tmp_path / "data")
    process = ControlApiProcess(tmp_path, SLUICE_POLICY_DIR="")
    try:
        process.ready()
        yield process
    finally:
        process.process.kill()
        process.process.wait()
        process.output.close()


def replay(port: int, exchange: Exchange, key: str) -> tuple[int, Any]:
    # Nothing changes here, so a poll that waits would only take its time.
    path = exchange.path.partition("&wait=")[0]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = exchange.headers | {"X-API-Key": key}
    connection.request(exchange.method, path, exchange.body or None, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_every_request_gets_an_answer_that_an_old_sidecar_reads(
    control: ControlApiProcess, version: str
) -> None:
    key = (RECORDED / version / "sidecar.key").read_text()
    admin = (RECORDED / version / "admin.key").read_text()
    exchanges = read(version)
    assert len({each.route for each in exchanges}) == 4
    log_key = unb64(exchanges[0].answer["log_key"])
    for exchange in exchanges:
        status, answer = replay(control.ready(), exchange, key)
        assert status == exchange.status, (exchange.route, answer)
        assert missing(exchange.answer, answer) == [], exchange.route
        if exchange.route.endswith("/policy-set"):
            # What it enforces is still in force, and each document has what it had.
            now = {each["name"]: json.loads(each["body"]) for each in answer["documents"]}
            for each in exchange.answer["documents"]:
                assert missing(json.loads(each["body"]), now[each["name"]]) == [], each["name"]
            assert "role/support" in now
        if exchange.route.endswith("/events"):
            # The log has the records as they were hashed, and vouches for them.
            unsigned = {name: answer[name] for name in exchange.answer} | {"signature": None}
            assert unsigned == {**exchange.answer, "signature": None}
            about = answer["source"], answer["instance"], answer["n"], unb64(answer["hash"])
            message = receipt_message("default", *about)
            assert verify(log_key, unb64(answer["signature"]), message)
    report = call(control.ready(), admin, "GET", "/v1/audit/verify")[1]
    assert report["valid"] is True
    decisions = call(control.ready(), admin, "GET", "/v1/audit/events?limit=100")[1]
    assert sum(each.get("source_id") == "payroll" for each in decisions) == 1
    # After a downgrade, it reads the spool that today's sidecar has written.
    assert header_bytes(Header("sidecar-1", "i1", 3, "AAAA")) == OLD_HEADER
    assert b"".join(frame_bytes(3, b'{"a":1}', more=True)) == OLD_FRAME


@pytest.mark.deep(
    stands_in="tests/control_api/fleet/test_fleet.py::test_unknown_fields_of_a_newer_sidecar_are_ignored"
)
def test_a_report_of_a_newer_sidecar_is_accepted(control: ControlApiProcess, version: str) -> None:
    """What a later minor version adds to a report, this one can't know."""
    key = (RECORDED / version / "sidecar.key").read_text()
    (report,) = [each for each in read(version) if each.route.endswith("/report")][:1]
    body = json.loads(report.body) | {"of_the_future": 1}
    status, answer = replay(control.ready(), report._replace(body=json.dumps(body).encode()), key)
    assert (status, missing(report.answer, answer)) == (200, [])
