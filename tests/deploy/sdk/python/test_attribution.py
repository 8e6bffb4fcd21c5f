"""W3C baggage and trace context, in and out."""

from __future__ import annotations

import json

import pytest

from sluice_guard import Guard, acting, propagation_headers
from tests.deploy.sdk.python.scripted_server import ALLOW, response, says, serving

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def asked(**given: object) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the body of a check within `acting(**given)`."""
    with (
        serving(says(response(ALLOW))) as server,
        Guard(server.url, "k", "a", "r", timeout=30) as guard,
    ):
        with acting(**given):  # type: ignore[arg-type]
            guard.check("s")
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    return {name.lower(): value for name, value in lines}, json.loads(body)


def test_user_and_session_of_the_context_are_in_the_body_and_the_baggage() -> None:
    headers, body = asked(user="änn, b;c=d", session="s 1")
    assert (body["user_id"], body["session_id"]) == ("änn, b;c=d", "s 1")
    assert "task_type" not in body
    assert headers["baggage"] == "sluice.user=%C3%A4nn%2C%20b%3Bc%3Dd,sluice.session=s%201"


def test_a_request_s_own_headers_are_read_and_passed_on() -> None:
    arrived = {
        "Baggage": "shop=eu;ttl=1, sluice.user=ann;p=1,sluice.task=audit",
        "traceparent": TRACE,
        "tracestate": "vendor=1",
        "cookie": "secret",
    }
    headers, body = asked(headers=arrived, task="summarize")
    assert (body["user_id"], body["task_type"]) == ("ann", "summarize")
    assert headers["baggage"] == "sluice.user=ann,sluice.task=summarize,shop=eu;ttl=1"
    assert (headers["traceparent"], headers["tracestate"]) == (TRACE, "vendor=1")
    assert "cookie" not in headers


def test_no_attribution_is_sent_outside_a_context() -> None:
    headers, body = asked()
    assert not {"baggage", "traceparent", "tracestate"} & headers.keys()
    assert body["user_id"] == "a"


def test_an_inner_context_inherits_what_it_does_not_set() -> None:
    with acting(user="ann", session="s-1", headers={"baggage": "shop=eu"}):
        with acting(session="s-2"):
            inner = propagation_headers()
        outer = propagation_headers()
    assert inner == {"baggage": "sluice.user=ann,sluice.session=s-2,shop=eu"}
    assert outer == {"baggage": "sluice.user=ann,sluice.session=s-1,shop=eu"}
    assert propagation_headers() == {}


def test_a_value_that_is_stated_twice_is_refused() -> None:
    with (
        pytest.raises(ValueError, match=r"sluice\.user` twice"),
        acting(headers={"baggage": "sluice.user=ann,sluice.user=bob"}),
    ):
        pass


@pytest.mark.parametrize("value", ["a=b\r\nX-API-Key: other", "a=\x00", "ä=1", "no equals sign"])
def test_a_value_that_can_t_be_a_header_is_left_out(value: str) -> None:
    headers, _ = asked(headers={"baggage": value, "traceparent": value})
    assert headers["x-api-key"] == "k"
    assert "baggage" not in headers
    assert headers.get("traceparent", value) == value


def test_baggage_has_the_limits_of_the_standard() -> None:
    many = ",".join(f"m{number}=1" for number in range(500))
    large = ",".join(f"m{number}={'x' * 2000}" for number in range(8))
    for line in (many, large):
        with acting(user="ann", headers={"baggage": line}):
            sent = propagation_headers()["baggage"]
        assert sent.startswith("sluice.user=ann,m0=")
        assert len(sent.split(",")) <= 64
        assert len(sent) < 8192 + 100
