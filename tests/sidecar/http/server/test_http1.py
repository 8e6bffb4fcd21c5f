"""The states of a connection, without any I/O."""

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from policies.ground.connection_budget import ConnectionBudget
from sidecar.http.messages.body import BodyStream
from sidecar.http.server.head_cache import KEY_BYTES, HeadCache
from sidecar.http.server.http1 import Http1, State
from sidecar.http.server.request import ClientConnection, HttpRequest
from tests.sidecar.http.server.served import LIMITS, get, post


def reading(*pieces: bytes) -> tuple[Http1, ConnectionBudget]:
    """A connection on which the pieces have arrived, and the budget of its unfinished head."""
    budget = ConnectionBudget(1)
    new_request = partial(HttpRequest, cast(ClientConnection, None))
    http1 = Http1(LIMITS, HeadCache(bytes(KEY_BYTES)), budget.head(), new_request, BodyStream)
    assert all(http1.parse(piece) for piece in pieces)
    return http1, budget


def test_requests_are_answered_in_order_and_unread_bodies_are_discarded() -> None:
    http1, _ = reading(get("/a") + post("/b", 4, b"ha"))
    seen = [http1.state]
    assert http1.begin().target == "/a"
    seen.append(http1.state)
    assert (http1.holds_back(), http1.ending) == (True, False), "another request waits"
    http1.done()
    request = http1.begin()
    http1.discard()
    seen.append(http1.state)
    assert (request.target, request.body.settled, http1.holds_back()) == ("/b", False, False)
    http1.parse(b"lf" + get("/c"))
    http1.done()
    seen.append(http1.state)
    assert seen == [State.IDLE, State.RESPONDING, State.DISCARDING, State.IDLE]
    assert [each.target for each in http1.waiting] == ["/c"]


@pytest.mark.parametrize(
    ("end", "state"),
    [(Http1.drain, State.DRAINING), (Http1.close, State.CLOSED), (Http1.switch, State.SWITCHED)],
)
def test_a_connection_that_ends_reads_and_serves_nothing_more(
    end: Callable[[Http1], object], state: State
) -> None:
    http1, budget = reading(get("/a") + get("/b") + b"GET /c HT")
    http1.begin()
    assert budget.head_bytes > 0
    end(http1)
    http1.hold(get("/d"))
    http1.done()
    assert (http1.state, http1.holds_back(), http1.ending) == (state, True, True)
    assert (bytes(http1.unread), list(http1.waiting), budget.head_bytes) == (b"", [], 0)
    http1.close()
    http1.drain()
    assert http1.state is State.CLOSED, "nothing leads out of it"


def test_a_connection_that_switches_returns_the_data_after_the_upgrade_request() -> None:
    http1, _ = reading(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\ninside")
    http1.begin()
    assert (http1.holds_back(), http1.ending) == (True, True)
    assert http1.switch() == b"inside"


@pytest.mark.parametrize("body", [b"half", b"whole body"])
def test_a_loss_breaks_off_the_body_that_is_arriving(body: bytes) -> None:
    http1, _ = reading(post("/a", 10, body))
    request = http1.begin()
    broken = body == b"half"
    assert http1.lose() is broken
    assert (request.body.failure is not None) is broken
    assert http1.lose() is False
