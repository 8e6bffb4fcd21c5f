"""What ends a live tail: the end of its session, too many tails, the end of the service."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from control_api.audit import event_operations
from control_api.log import tails
from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

LIVE = "/console/decisions/live"


def opened(api: ControlApi, visitor: Visitor) -> http.client.HTTPConnection:
    """A connection on which a tail was asked for."""
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    headers = {"Host": visitor.host, "Cookie": cookie, "Accept-Encoding": "gzip"}
    connection.request("GET", LIVE, headers=headers)
    return connection


def revoke_key(api: ControlApi, key_id: str, _: Visitor) -> None:
    api.admin("DELETE", f"/v1/keys/{key_id}")


def revoke_session(api: ControlApi, key_id: str, _: Visitor) -> None:
    sessions = api.admin("GET", "/v1/console/sessions")
    session = next(each for each in sessions if each["person"] == key_id)
    api.admin("DELETE", f"/v1/console/sessions/{session['session_id']}")


def sign_out(_: ControlApi, __: str, visitor: Visitor) -> None:
    visitor.submit(visitor.get("/console/account"), "/console/sign-out")


def be_idle(api: ControlApi, _: str, __: Visitor) -> None:
    # An open tail is no use of the session: what is left open on a screen ends by itself.
    api.time.ahead += 61 * 60


def reach_the_limit(api: ControlApi, _: str, __: Visitor) -> None:
    api.time.ahead += 13 * 3600


@pytest.mark.parametrize("end", [revoke_key, revoke_session, sign_out, be_idle, reach_the_limit])
def test_a_tail_ends_with_its_session(
    api: ControlApi,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[ControlApi, str, Visitor], None],
) -> None:
    monkeypatch.setattr(event_operations, "CHECK_SECONDS", 0.05)
    made = api.admin("POST", "/v1/keys", {"name": "watcher", "scope": "read"})
    visitor = Visitor(api).sign_in(made["key"])
    connection = opened(api, visitor)
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers.get("Content-Encoding") is None
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.readline().startswith(b"retry: ")
    for _ in range(6):  # it lives through several checks
        assert not answer.readline().startswith(b"event")
    ahead = api.time.ahead
    try:
        end(api, made["key_id"], visitor)
        assert b"event: ended" in answer.read()
    finally:
        api.time.ahead = ahead
        connection.close()


def test_a_busy_tail_ends_with_its_session(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions that go on arriving do not put off the question."""
    monkeypatch.setattr(event_operations, "CHECK_SECONDS", 0.2)
    visitor = Visitor(api).sign_in(api.new_key("read"))
    connection = opened(api, visitor)
    answer = connection.getresponse()
    stop = threading.Event()

    def decide() -> None:
        while not stop.is_set():
            api.evaluate()

    busy = threading.Thread(target=decide)
    busy.start()
    try:
        sign_out(api, "", visitor)
        assert b"event: ended" in answer.read()
    finally:
        stop.set()
        busy.join()
        connection.close()


def test_too_many_tails_are_answered_and_a_closed_one_makes_room(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_operations, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(tails, "MAX_OF_OWNER", 1)
    visitor = Visitor(api).sign_in(api.new_key("read"))
    connection = opened(api, visitor)
    held = connection.getresponse()
    held.readline()
    refused = visitor.get(LIVE)
    assert refused.status == 503
    assert "live tails" in refused.text
    held.close()
    connection.close()

    def room() -> bool:
        again = opened(api, visitor)
        try:
            return again.getresponse().status == 200
        finally:
            again.close()

    until("the closed tail is noticed", room)


def test_tails_end_at_once_with_the_service(tmp_path: Path) -> None:
    with running_control_api(tmp_path) as api:
        connection = opened(api, Visitor(api).sign_in(api.admin_key))
        answer = connection.getresponse()
        assert answer.readline()
        read = threading.Thread(target=answer.read)
        read.start()
    # The drain has waited for it: the stream has come to its end.
    read.join(10)
    assert not read.is_alive()
    connection.close()
