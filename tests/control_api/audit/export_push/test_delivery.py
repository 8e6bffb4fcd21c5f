"""What each kind of receiver gets, as its standard says."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from control_api.audit.export_push import target_loop
from control_api.audit.export_push.sender import TargetAway
from control_api.audit.export_push.syslog import SyslogSender
from control_api.security.export_targets import ExportTarget
from tests.control_api.audit.export_push.receiver import Receiver, decide, lag, metric
from tests.support.certificates import authority
from tests.support.control_api import asked, running_control_api
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until

KINDS = [("otlp", False), ("otlp", True), ("syslog", False), ("syslog", True)]


@pytest.fixture(params=KINDS, ids=["otlp+http", "otlp+https", "syslog+tcp", "syslog+tls"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receiver]:
    kind, tls = request.param
    made = Receiver(tmp_path / "receiver", kind, tls=tls)
    yield made
    made.kill()


def test_a_file_gets_every_tenant_s_decisions_once_through_restarts_and_beside_an_absent_target(
    tmp_path: Path,
) -> None:
    target, kept = tmp_path / "decisions", "format=ecs"
    urls = f"otlp+http://127.0.0.1:{free_port()},file://{target}?{kept}"
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=urls) as api:
        made = decide(api, 4)
        key = api.admin("POST", "/v1/admin/tenants", {"name": "acme"})["admin_key"]
        answer = api.call("POST", "/v1/context/evaluate", asked(), key=key)
        theirs = [answer.body["event_id"]]
        # The service ends at once: what was decided last is pushed before.
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=f"file://{target}?{kept}") as api:
        made += decide(api, 3)
    ids = [json.loads(line)["event"]["id"] for line in target.read_text().splitlines()]
    assert [each for each in ids if each not in theirs] == made
    assert [each for each in ids if each not in made] == theirs


def test_a_file_gets_everything_while_a_collector_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_loop, "ANSWER_SECONDS", 10 * PATIENCE)  # so nothing else ends it
    target = tmp_path / "decisions"
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        hanging.settimeout(PATIENCE)
        urls = f"otlp+http://127.0.0.1:{hanging.getsockname()[1]},file://{target}?format=ecs"
        with running_control_api(tmp_path, SLUICE_EXPORT_URLS=urls) as api:
            made = decide(api, 4)
            connection, _ = hanging.accept()
            with connection:
                assert connection.recv(1)  # a request, which gets no answer
                made += decide(api, 4)
                until("the file has them", lambda: _ids_in(target) == made)
                assert lag(api, 1) >= 4
            hanging.close()


def _ids_in(target: Path) -> list[str]:
    whole = target.read_bytes() if target.exists() else b""
    lines = whole[: whole.rfind(b"\n") + 1].splitlines()
    return [json.loads(line)["event"]["id"] for line in lines]


async def test_a_syslog_receiver_of_another_authority_gets_nothing() -> None:
    got: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(100))
        writer.close()

    tls = authority().server("127.0.0.1")
    async with await asyncio.start_server(receive, "127.0.0.1", 0, ssl=tls) as server:
        url = f"syslog+tls://127.0.0.1:{server.sockets[0].getsockname()[1]}?format=ecs"
        sender = SyslogSender(ExportTarget.parse(url))
        with pytest.raises(TargetAway, match="certificate"):
            await sender.send([b"1 x"])
        sender = SyslogSender(ExportTarget.parse(f"{url}&ca={authority().path}"))
        await sender.send([b"1 x"])
        await sender.settle()
    assert got == [b"1 x"]


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_deaths.py::test_a_receiver_that_is_killed_at_any_time_misses_nothing"
)
def test_every_decision_arrives_once_and_in_order(receiver: Receiver, tmp_path: Path) -> None:
    receiver.start()
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made = decide(api, 230) + decide(api, 30, source_id="payroll")
        until("the records have arrived", lambda: len(receiver.ids()) >= 260)
        made += decide(api, 5)
        until("the records have arrived", lambda: len(receiver.ids()) >= 265)
        until("everything is exported", lambda: lag(api) == 0)
        assert metric(api, 'sluice_export_decisions_total{outcome="acknowledged"') == 265
    assert receiver.ids() == made
    assert receiver.faults() == ""


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_log.py::test_unacknowledged_decisions_are_sent_again_and_then_saved"
)
def test_an_unreachable_target_gets_everything_once_when_it_is_back(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made = decide(api, 20)
        until("the export lags", lambda: lag(api) >= 20)
        until("an export has failed", lambda: metric(api, "sluice_export_failures_total") >= 2)
        assert api.call("GET", "/health/ready", key=None).status == 200
        receiver.start()
        until("the records have arrived", lambda: len(receiver.ids()) >= 20)
        until("everything is exported", lambda: lag(api) == 0)
    assert receiver.ids() == made
    told = [each.getMessage() for each in caplog.records if each.name == "sluice.exports"]
    assert [("is away" in each, "recovered: " in each) for each in told] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.deep(
    stands_in="test_a_file_gets_every_tenant_s_decisions_once_through_restarts_and_beside_an_absent_target"
)
def test_the_last_decision_is_pushed_before_the_service_ends(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.start()
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made = decide(api, 3)
        until("the records have arrived", lambda: len(receiver.ids()) == 3)
        made += decide(api, 7)
    assert receiver.ids() == made


@pytest.mark.deep(
    stands_in="test_a_file_gets_every_tenant_s_decisions_once_through_restarts_and_beside_an_absent_target"
)
def test_an_export_continues_where_it_was_after_a_restart_or_a_return_of_its_url(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.start()
    made = list[str]()
    # Last its place in the list is another one.
    for urls in (receiver.url, "", f"file://{tmp_path}/other?format=ecs,{receiver.url}"):
        with running_control_api(tmp_path, **({"SLUICE_EXPORT_URLS": urls} if urls else {})) as api:
            made += decide(api, 10)
            if urls:
                until("the records have arrived", partial(receiver.has, len(made)))
    assert receiver.ids() == made
    other = [json.loads(line) for line in (tmp_path / "other").read_text().splitlines()]
    assert [each["event"]["id"] for each in other] == made


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_log.py::test_a_damaged_entry_delays_none_behind_it"
)
def test_a_new_target_begins_with_the_oldest_entry(receiver: Receiver, tmp_path: Path) -> None:
    with running_control_api(tmp_path) as api:
        made = decide(api, 10)
    receiver.start()
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made += decide(api, 1)
        until("the records have arrived", lambda: len(receiver.ids()) == 11)
    assert receiver.ids() == made


@pytest.mark.deep(
    stands_in="test_a_file_gets_every_tenant_s_decisions_once_through_restarts_and_beside_an_absent_target"
)
def test_every_tenant_is_pushed(receiver: Receiver, tmp_path: Path) -> None:
    receiver.start()
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made = {}
        for name in ("acme", "globex", "initech"):
            tenant = api.admin("POST", "/v1/admin/tenants", {"name": name})
            key = tenant["admin_key"]
            asked = {
                "agent_role": "r",
                "user_id": "u",
                "source_id": "s",
                "sensitivity_level": "low",
            }
            answers = [api.call("POST", "/v1/context/evaluate", asked, key=key) for _ in range(3)]
            assert {each.status for each in answers} == {200}
            made[tenant["tenant_id"]] = [each.body["event_id"] for each in answers]
        until("the records have arrived", lambda: len(receiver.ids()) == 9)
    for tenant_id, ids in made.items():
        assert [eid for tenant, _, eid in receiver.taken() if tenant == tenant_id] == ids


def test_an_erased_user_is_absent(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with running_control_api(tmp_path) as api:
        eid = decide(api, 1, user_id="ann@example.org")[0]
        kept = decide(api, 1, user_id="bob@example.org")[0]
        api.admin("POST", "/v1/audit/redact", {"user_id": "ann@example.org", "reason": "asked for"})
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=f"file://{target}?format=ocsf"):
        until(
            "the records are in the file",
            lambda: target.exists() and target.read_text().count("\n") == 2,
        )
    first, second = map(json.loads, target.read_text().splitlines())
    assert first["metadata"]["uid"] == eid
    assert "user" not in first["actor"]
    assert second["metadata"]["uid"] == kept
    assert second["actor"]["user"] == {"uid": "bob@example.org"}


@pytest.mark.deep(stands_in="test_a_syslog_receiver_of_another_authority_gets_nothing")
def test_another_authority_s_certificate_is_not_trusted(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "receiver", "syslog", tls=True).start()
    try:
        url = receiver.url.partition("&ca=")[0]
        with running_control_api(tmp_path, SLUICE_EXPORT_URLS=url) as api:
            decide(api, 1)
            until("an export has failed", lambda: metric(api, "sluice_export_failures_total") >= 2)
        assert receiver.ids() == []
    finally:
        receiver.kill()
