"""What an OTLP receiver may answer, and what is made of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from control_api.audit.export_push.otlp import OtlpSender
from control_api.audit.export_push.sender import TargetAway
from control_api.audit.export_push.target_loop import TargetLoop
from control_api.security.export_targets import ExportTarget
from tests.control_api.audit.export_push.receiver import Receiver, decide, lag, metric, parts_on
from tests.support.control_api import ControlApi, running_control_api
from tests.support.open_store import TENANT, decision, opened
from tests.support.waiting import until

REFUSED = 'sluice_export_decisions_total{outcome="refused"'
FAILURES = "sluice_export_failures_total"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path / "receiver", "otlp")
    yield made
    made.kill()


def failed(api: ControlApi, times: int) -> bool:
    return metric(api, FAILURES) >= times


@asynccontextmanager
async def sending(
    answer: Callable[[bytes], web.Response],
    rest: str = "?compression=none",
    seen: list[str] | None = None,
) -> AsyncIterator[OtlpSender]:
    """A sender whose target answers each body so."""

    async def handle(request: web.BaseRequest) -> web.Response:
        if seen is not None:
            names = ("Content-Type", "Content-Encoding", "Authorization")
            seen.append(" ".join([request.path, *(str(request.headers.get(n)) for n in names)]))
        return answer(await request.read())

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"otlp+http://127.0.0.1:{runner.addresses[0][1]}{rest}"
    sender = OtlpSender(ExportTarget.parse(url))
    try:
        yield sender
    finally:
        await sender.abandon()
        await runner.cleanup()


def records(*names: str) -> list[bytes]:
    return [b'null\n{"n":"%s"}' % name.encode() for name in names]


@pytest.mark.parametrize("status", [429, 503, 401, 404, 500, 302, 400])
async def test_an_answer_that_takes_nothing_is_no_acknowledgement(status: int) -> None:
    headers = {"Retry-After": "7"}
    async with sending(lambda _: web.Response(status=status, headers=headers)) as sender:
        with pytest.raises(TargetAway, match=f"it answer(s|ed) {status}"):
            await sender.send(records("a", "b"))


async def test_a_request_has_the_path_coding_and_headers_of_the_url(tmp_path: Path) -> None:
    headers, seen = tmp_path / "headers", list[str]()
    headers.write_text("Authorization: Bearer first\n")
    rest = f"/tenants/a/?headers_file={headers}"
    async with sending(lambda _: web.Response(), rest, seen) as sender:
        await sender.send(records("a"))
        headers.write_text("Authorization: Bearer second\n")
        await sender.send(records("a"))
    async with sending(lambda _: web.Response(), "/v1/logs?compression=none", seen) as sender:
        await sender.send(records("a"))
    assert seen == [
        "/tenants/a/v1/logs application/json gzip Bearer first",
        "/tenants/a/v1/logs application/json gzip Bearer second",
        "/v1/logs application/json None None",
    ]


async def test_only_the_bad_data_of_a_request_is_left_out() -> None:
    taken: list[bytes] = []

    def answer(body: bytes) -> web.Response:
        if b"bad" in body:
            return web.Response(status=400)
        taken.extend(re.findall(rb'"n":"(\w+)"', body))
        return web.json_response({"partialSuccess": {"rejectedLogRecords": "1"}})

    async with sending(answer) as sender:
        # A partial success is not repeated, and counts what it refused.
        assert await sender.send(records("a", "b")) == 1
        assert taken == [b"a", b"b"]
        assert await sender.send(records("c", "bad", "d")) == 3
        assert taken == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("mode", ["partial", "bad data"])
async def test_a_refused_decision_is_counted_and_logged_and_not_repeated(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    bodies, registry = list[bytes](), CollectorRegistry()

    def answer(body: bytes) -> web.Response:
        if mode == "bad data":
            if b"payroll" in body:
                return web.Response(status=400)
            bodies.append(body)
            return web.Response()
        bodies.append(body)
        return web.json_response({"partialSuccess": {"rejectedLogRecords": "2"}})

    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world, sending(answer) as sender:
        made = [
            (await world.log.append(TENANT, decision(source_id=source))).eid
            for source in ("handbook", "payroll", "handbook", "payroll", "handbook")
        ]
        app = parts_on(world, registry)
        app.stopping.set()
        target = ExportTarget.parse("otlp+http://127.0.0.1:1")
        for _ in range(2):
            await TargetLoop(app, target, 1, sender).run()
    taken = b"".join(bodies)
    wanted = [0 if mode == "bad data" and at % 2 else 1 for at in range(5)]
    ids = [taken.count(b'"stringValue":"%s"' % eid.encode()) for eid in made]
    assert [min(each, 1) for each in ids] == wanted
    assert max(ids) == min(each for each in ids if each)
    for outcome, count in (("refused", 2), ("acknowledged", 3)):
        labels = {"target": "1", "outcome": outcome}
        assert registry.get_sample_value("sluice_export_decisions_total", labels) == count
    assert "refused 2 of 5 decisions for good" in caplog.text


@pytest.mark.deep(stands_in="test_an_answer_that_takes_nothing_is_no_acknowledgement")
@pytest.mark.parametrize("status", ["429", "503", "401", "404", "500", "302", "400"])
def test_a_refused_request_is_sent_again(
    receiver: Receiver, tmp_path: Path, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.start(status)
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made = decide(api, 40)
        until("an export has failed", partial(failed, api, 1))
        assert lag(api) >= 40
        receiver.set("")
        until("everything has arrived", partial(receiver.has_all, made))
        assert metric(api, REFUSED) == 0
    assert receiver.ids() == made
    assert f"it answers {status}" in caplog.text or f"it answered {status}" in caplog.text


@pytest.mark.deep(stands_in="test_a_refused_decision_is_counted_and_logged_and_not_repeated")
def test_a_partial_success_is_not_repeated(receiver: Receiver, tmp_path: Path) -> None:
    receiver.start("partial")
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        made = decide(api, 10)
        until("the refused records are counted", lambda: metric(api, REFUSED) == 2)
        until("everything is exported", lambda: lag(api) == 0)
    assert receiver.ids() == made


@pytest.mark.deep(stands_in="test_a_refused_decision_is_counted_and_logged_and_not_repeated")
def test_bad_data_is_left_out_and_its_neighbours_are_pushed(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.start("bad_data")
    with running_control_api(tmp_path) as api:
        before = decide(api, 17)
        bad = decide(api, 2, source_id="payroll")
        after = decide(api, 12)
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        until("everything has arrived", partial(receiver.has_all, [*before, *after]))
        until("the refused records are counted", lambda: metric(api, REFUSED) == len(bad))
        until("everything is exported", lambda: lag(api) == 0)
    assert receiver.ids() == [*before, *after]
    assert "refused 2 of 31 decisions for good" in caplog.text


@pytest.mark.deep(stands_in="test_a_request_has_the_path_coding_and_headers_of_the_url")
def test_requests_have_the_path_the_coding_and_the_headers_of_the_url(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer first-token\n")
    receiver.start()
    place = f"otlp+http://127.0.0.1:{receiver.port}"
    urls = f"{place}/tenants/secret-path/?headers_file={headers},{place}/v1/logs?compression=none"
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=urls) as api:
        decide(api, 1)
        until("the notes have arrived", lambda: len(receiver.notes()) == 2)
        headers.write_text("Authorization: Bearer second-token\n")
        decide(api, 1)
        until("the notes have arrived", lambda: len(receiver.notes()) == 4)
        receiver.kill()
        decide(api, 1)
        until("an export has failed", partial(failed, api, 1))
        until("it says that the receiver is away", lambda: "is away" in caplog.text)
    json_ = "application/json"
    assert sorted(receiver.notes()) == [
        f"/tenants/secret-path/v1/logs {json_} gzip Bearer first-token",
        f"/tenants/secret-path/v1/logs {json_} gzip Bearer second-token",
        f"/v1/logs {json_} None None",
        f"/v1/logs {json_} None None",
    ]
    for secret in ("secret-path", "first-token", "second-token", str(headers)):
        assert secret not in caplog.text
