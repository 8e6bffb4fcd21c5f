"""Requests that fail because something is away: a line for each cause, and not for each request."""

import pytest

from control_api.edge.request_shell import PAUSE_SECONDS, ServerFaults
from policies.ground.errors import Unavailable


def test_each_cause_is_logged_once_a_minute_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    faults = ServerFaults(lambda: now[0])
    faults.answered("evaluate_context")
    for _ in range(3):
        faults.failed("evaluate_context", Unavailable("no database"))
        faults.failed("list_keys", Unavailable("no database"))
    faults.failed("list_keys", Unavailable("no checkpoint store"))
    # It needs neither, and so shows nothing.
    faults.answered("show_liveness")
    assert caplog.messages == [
        "request failed with 503: no database",
        "request failed with 503: no checkpoint store",
    ]
    caplog.clear()
    faults.answered("evaluate_context")
    faults.answered("evaluate_context")
    faults.answered("list_keys")
    assert caplog.messages == [
        "recovered: `evaluate_context` is answered again",
        "recovered: `list_keys` is answered again",
    ]
    caplog.clear()
    faults.failed("evaluate_context", Unavailable("no database"))
    assert caplog.messages == [], "too soon for another line"
    now[0] = PAUSE_SECONDS
    faults.failed("evaluate_context", Unavailable("no database"))
    assert caplog.messages == ["request failed with 503: no database"]
