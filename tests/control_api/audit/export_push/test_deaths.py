"""Receivers and senders are killed at every point: nothing is missing, and what comes twice comes
right after a death."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.control_api.audit.export_push.receiver import (
    Receiver,
    decide,
    lag,
    metric,
    without_repeats,
)
from tests.support.control_api import ControlApi, asked, running_control_api
from tests.support.control_api_process import ControlApiProcess, call
from tests.support.postgres import serving
from tests.support.waiting import until

KINDS = [("otlp", False), ("syslog", False), ("syslog", True)]
POINTS = {
    "otlp": ("die_before", "die_after", ""),
    "syslog": ("die_before", "die_within", ""),
}


@pytest.fixture(params=KINDS, ids=["otlp", "syslog+tcp", "syslog+tls"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receiver]:
    kind, tls = request.param
    made = Receiver(tmp_path / "receiver", kind, tls=tls)
    yield made
    made.kill()


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_log.py::test_unacknowledged_decisions_are_sent_again_and_then_saved"
)
def test_a_receiver_that_dies_before_or_after_it_acknowledges_misses_nothing(
    receiver: Receiver, tmp_path: Path
) -> None:
    made, deaths = list[str](), 0
    with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
        for mode in POINTS[receiver.kind]:
            receiver.start(mode)
            made += decide(api, 150)
            if mode:
                receiver.died()
                deaths += 1
            else:
                until("everything has arrived", partial(receiver.has_all, made))
                receiver.kill()
        receiver.start()
        until("everything has arrived", partial(receiver.has_all, made))
        until("everything is exported", lambda: lag(api) == 0)
    first, back = without_repeats(receiver.taken())
    assert first == made
    assert back <= deaths
    assert receiver.faults() == ""


def test_a_receiver_that_is_killed_at_any_time_misses_nothing(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "receiver", "otlp")
    made = list[str]()
    try:
        with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
            for count in (40, 200, 80):
                receiver.start("slow")
                made += decide(api, count)
                time.sleep(count % 7 / 10)  # the kill comes at another point each time
                receiver.kill()
            receiver.start()
            until("everything has arrived", partial(receiver.has_all, made))
        first, back = without_repeats(receiver.taken())
        assert first == made
        assert back <= 3
    finally:
        receiver.kill()


@contextmanager
def service(folder: Path, urls: str, **settings: str) -> Iterator[ControlApiProcess]:
    """A control API that is killed at the end."""
    made = ControlApiProcess(folder, SLUICE_EXPORT_URLS=urls, **settings)
    try:
        yield made
    finally:
        made.process.kill()
        made.ended()
        made.output.close()


def decided(port: int, key: str, count: int) -> list[str]:
    items = {"items": [asked() for _ in range(count)]}
    status, answer = call(port, key, "POST", "/v1/context/evaluate/batch", items)
    assert status == 200, answer
    return [each["event_id"] for each in answer["results"]]


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_log.py::test_unacknowledged_decisions_are_sent_again_and_then_saved"
)
def test_a_sender_that_is_killed_misses_nothing(receiver: Receiver, tmp_path: Path) -> None:
    target = tmp_path / "decisions"
    urls = f"{receiver.url},file://{target}?format=ecs"
    receiver.start()
    made, kills = list[str](), 3
    for turn in range(kills):
        with service(tmp_path, urls) as sender:
            port = sender.ready()
            key = sender.first_keys()["admin_key"]
            for _ in range(3):
                made += decided(port, key, 90)
            # Not before something is under way, and at another point each time.
            until("the records have arrived", partial(receiver.has, turn * 200 + 1))
            time.sleep(turn * 0.3)
    with service(tmp_path, urls) as sender:
        sender.ready()
        until("everything has arrived", partial(receiver.has_all, made))
        until("everything is in the file", lambda: set(ids_in(target)) >= set(made))
    first, back = without_repeats(receiver.taken())
    assert first == made
    assert back <= kills
    lines = ids_in(target)
    assert list(dict.fromkeys(lines)) == made
    assert receiver.faults() == ""


def ids_in(target: Path) -> list[str]:
    if not target.exists():
        return []
    whole = target.read_bytes().rpartition(b"\n")[0].splitlines()
    return [json.loads(line)["event"]["id"] for line in whole]


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_log.py::test_one_replica_at_a_time_pushes_a_log"
)
def test_two_replicas_push_everything_once(tmp_path: Path, migrated_url: str) -> None:
    """And when one is killed, the other goes on."""
    settings = {"SLUICE_DATABASE_URL": serving(migrated_url)}
    made = list[str]()
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (other / "data").mkdir(parents=True, mode=0o700)
    with ExitStack() as stack:
        receiver = Receiver(tmp_path / "receiver", "otlp").start()
        stack.callback(receiver.kill)
        first = stack.enter_context(service(one, receiver.url, **settings))
        ports = [first.ready()]
        key = first.first_keys()["admin_key"]
        (other / "data").chmod(0o700)
        shutil.copy(one / "data" / "log.key", other / "data")
        second = stack.enter_context(service(other, receiver.url, **settings))
        ports.append(second.ready())
        for turn in range(8):
            made += decided(ports[turn % 2], key, 40)
            time.sleep(0.4)  # several polls of both
        until("everything has arrived", partial(receiver.has_all, made))
        assert receiver.ids() == made
        first.process.kill()
        made += decided(ports[1], key, 40)
        until("everything has arrived", partial(receiver.has_all, made))
        order, back = without_repeats(receiver.taken())
        assert order == made
        assert back <= 1


@pytest.mark.deep(
    stands_in="tests/control_api/audit/export_push/test_delivery.py::test_a_file_gets_everything_while_a_collector_never_answers"
)
def test_a_target_that_hangs_delays_no_other(tmp_path: Path) -> None:
    hanging = [Receiver(tmp_path / kind, kind).start("hang") for kind in ("otlp", "syslog")]
    good = Receiver(tmp_path / "good", "otlp").start()
    try:
        urls = ",".join([*(each.url for each in hanging), good.url])
        with running_control_api(tmp_path, SLUICE_EXPORT_URLS=urls) as api:
            made = decide(api, 100)
            until("everything has arrived", partial(good.has_all, made))
            failed = 'sluice_export_failures_total{target="%d"}'
            for place in (1, 2):
                until("an export has failed", partial(_failed, api, failed % place))
                assert lag(api, place) >= 100
            assert lag(api, 3) == 0
            for each in hanging:
                each.kill()
                each.start()
            for each in hanging:
                until("everything has arrived", partial(each.has_all, made))
                assert each.ids() == made
    finally:
        for each in (*hanging, good):
            each.kill()


def _failed(api: ControlApi, sample: str) -> bool:
    return metric(api, sample) >= 1


@pytest.mark.deep(stands_in="test_a_receiver_that_is_killed_at_any_time_misses_nothing")
@pytest.mark.parametrize("kind", ["otlp", "syslog"])
def test_a_slow_target_gets_everything_once(tmp_path: Path, kind: str) -> None:
    receiver = Receiver(tmp_path / "receiver", kind).start("slow")
    try:
        with running_control_api(tmp_path, SLUICE_EXPORT_URLS=receiver.url) as api:
            made = decide(api, 300)
            until("everything has arrived", partial(receiver.has_all, made))
            until("everything is exported", lambda: lag(api) == 0)
        assert receiver.ids() == made
    finally:
        receiver.kill()
