"""Today's services beside those of the previous minor version, from its source in git: an upgrade
in the order of `deploy/README.md`, "Compatibility", with real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.previous import of_version, prepare
from tests.support.redis import running_redis
from tests.support.stack import ROOT, Stack
from tests.support.waiting import AWAY, until


def decide(stack: Stack) -> None:
    """A decision of each kind, and the record of the last one in the log."""
    stack.sidecar.wait_ready()
    assert stack.evaluate(session_id="s-1")[1]["decision"] == "ALLOW"
    status, denied = stack.evaluate(source_id="payroll")
    assert (status, denied["decision"]) == (200, "DENY")
    stack.wait_shipped(denied["event_id"])


@pytest.fixture(params=["without Redis", "with Redis"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with contextlib.ExitStack() as cleanup:
        url = None
        if request.param == "with Redis":
            url = cleanup.enter_context(running_redis(tmp_path / "redis")).url
        made = Stack(tmp_path / "stack", redis_url=url)
        shutil.rmtree(made.directory / "data")  # the previous version makes its own database
        yield made
        made.stop()


@pytest.mark.deep(
    stands_in="tests/compatibility/test_old_sidecar.py::test_every_request_gets_an_answer_that_an_old_sidecar_reads"
)
def test_an_upgrade_service_by_service_loses_no_decision(previous: Path, stack: Stack) -> None:
    of_version(stack, previous, service="control")
    of_version(stack, previous, service="sidecar")
    stack.start_control()
    prepare(stack)
    stack.sidecar.start()
    decide(stack)
    # The control API first: its start upgrades the SQLite file. The old sidecar stays.
    stack.control.stop()
    of_version(stack, service="control")
    stack.control.start()
    decide(stack)
    # What an operator does now reaches it.
    stack.admin("POST", "/v1/sessions/revoke", {"user_id": "ann", "reason": "a test"})
    until(
        "the old sidecar knows of the revocation",
        lambda: stack.evaluate(session_id="s-1")[1]["decision"] == "DENY",
        despite=AWAY,
    )
    # Then the sidecar, on its own cache and spool.
    stack.sidecar.stop()
    of_version(stack, service="sidecar")
    stack.sidecar.start()
    status, answer = stack.evaluate(session_id="s-1")
    assert (status, answer["decision"]) == (200, "DENY")
    assert stack.evaluate(session_id="s-2")[1]["decision"] == "ALLOW"
    # And back: the previous sidecar starts on what today's has written.
    stack.sidecar.stop()
    of_version(stack, previous, service="sidecar")
    stack.sidecar.start()
    _, last = stack.evaluate(session_id="s-2")
    assert last["decision"] == "ALLOW"
    stack.wait_shipped(last["event_id"])
    assert stack.verify()["valid"] is True


@pytest.mark.deep(
    stands_in="tests/compatibility/test_old_control_api.py::test_a_sidecar_decides_by_what_an_old_control_api_sends"
)
def test_a_newer_sidecar_works_at_an_older_control_api(previous: Path, stack: Stack) -> None:
    of_version(stack, previous, service="control")
    of_version(stack, service="sidecar")
    stack.start_control()
    prepare(stack)
    stack.sidecar.start()
    decide(stack)
    assert stack.verify()["valid"] is True


_AS_BEFORE = """
import json, sys
from policies.ground.canonical import encode
from policies.trail.entry import audit_event, index_of
from policies.trail.spool_chain import read_payload
from policies.trail.stored_entry import StoredRow
from policies.trail.verify import LogHead, Verifier
log = json.load(open(sys.argv[1]))
verifier = Verifier(log["log"])
for seq, each in enumerate(log["entries"]):
    entry, leaf, openings = json.loads(each["utf8"]), bytes.fromhex(each["leaf"]), each["openings"]
    if "core" in each:
        read = read_payload({"core": json.loads(each["core"]), "open": openings})
        assert (read.hash.hex(), read.openings) == (each["core_hash"], encode(openings)), seq
    row = StoredRow(seq, each["utf8"].encode(), leaf, index_of(entry), encode(openings))
    assert verifier.feed(row), seq
    assert audit_event(entry, leaf, encode(openings))["query"] == openings["query"][1]
size, last, ts, frontier = log["head"]
report = verifier.finish(LogHead(size, bytes.fromhex(last), ts, bytes.fromhex(frontier)))
assert report.valid, report
"""


@pytest.mark.deep(
    stands_in="tests/policies/test_vectors.py::test_decisions_about_what_statements_read_equal_the_golden_ones"
)
def test_an_older_control_api_keeps_records_of_what_statements_read(previous: Path) -> None:
    """It shows neither the statement nor its parameters, but keeps, erases and verifies both."""
    vector = ROOT / "tests" / "vectors" / "statements.json"
    command = [sys.executable, "-P", "-c", _AS_BEFORE, str(vector)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(previous)}, check=True)
