"""W3C baggage and trace context, in and out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.sdk.python.scripted_server import ALLOW, response, says, serving
from tests.deploy.sdk.python.test_attribution import TRACE
from tests.deploy.sdk.typescript.node import run


def asked(**given: object) -> tuple[dict[str, str], dict[str, str]]:
    """The headers and the body of a check within `acting(given)`."""
    script = """
    const guard = new Guard(given.url, "k", "a", "r");
    await acting(given.who, () => guard.check("s"));
    guard.close();
    """
    with serving(says(response(ALLOW))) as server:
        run(script, url=server.url, who=given)
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    return {name.lower(): value for name, value in lines}, json.loads(body)


def test_user_and_session_of_the_context_are_in_the_body_and_the_baggage() -> None:
    headers, body = asked(user="änn, b;c=d", session="s 1")
    assert (body["user_id"], body["session_id"]) == ("änn, b;c=d", "s 1")
    assert "task_type" not in body
    assert headers["baggage"] == "sluice.user=%C3%A4nn%2C%20b%3Bc%3Dd,sluice.session=s%201"
    assert headers["x-api-key"] == "k"


def test_code_that_runs_beside_a_context_is_not_in_it() -> None:
    script = """
    const guard = new Guard(given.url, "k", "a", "r");
    const later = acting({ user: "ann", session: "of-ann", task: "audit" }, async () => {
      await new Promise((resolve) => setImmediate(resolve));
      const headers = { Baggage: "shop=eu,sluice.user=b%C3%B6b,sluice.session=of-bob" };
      await acting({ headers }, () => guard.check("s"));
      await guard.check("s");
    });
    await guard.check("s");
    await later;
    await guard.check("s");
    guard.close();
    """
    with serving(says(response(ALLOW))) as server:
        run(script, url=server.url)
        bodies = [json.loads(each.partition(b"\r\n\r\n")[2]) for each in server.requests]
    names = ("user_id", "session_id", "task_type")
    asked = sorted([tuple(each.get(name, "") for name in names) for each in bodies])
    itself, ann, bob = ("a", "", ""), ("ann", "of-ann", "audit"), ("böb", "of-bob", "audit")
    assert asked == [itself, itself, ann, bob]


def test_the_environment_gives_the_key_the_agent_and_the_service(tmp_path: Path) -> None:
    file = tmp_path / "agent.key"
    file.write_text("of-a-file\n")
    script = """
    const environ = { SLUICE_GUARD_URL: `${given.url}\\n`, SLUICE_GUARD_KEY: "k",
                      SLUICE_GUARD_AGENT_ID: "agt", SLUICE_GUARD_ROLE: "support" };
    const ask = async () => {
      const made = Guard.fromEnviron(environ);
      await made.check("s");
      made.close();
    };
    await ask();
    delete environ.SLUICE_GUARD_KEY;
    environ.SLUICE_GUARD_KEY_FILE = given.file;
    await ask();
    delete environ.SLUICE_GUARD_KEY_FILE;
    return await ask().catch((error) => error.message);
    """
    with serving(says(response(ALLOW))) as server:
        assert run(script, url=server.url, file=str(file)) == "`SLUICE_GUARD_KEY` is not set"
        first, second = server.requests
    assert (b": k\r\n" in first, b": of-a-file\r\n" in second) == (True, True)
    body = json.loads(second.partition(b"\r\n\r\n")[2])
    assert (body["agent_id"], body["agent_role"]) == ("agt", "support")


def test_a_request_s_own_headers_are_read_and_passed_on() -> None:
    arrived = {
        "Baggage": "shop=eu;ttl=1, sluice.user=ann;p=1,sluice.task=audit",
        "traceparent": TRACE,
        "tracestate": ["vendor=1", "other=2"],
        "cookie": "secret",
    }
    headers, body = asked(headers=arrived, task="summarize")
    assert (body["user_id"], body["task_type"]) == ("ann", "summarize")
    assert headers["baggage"] == "sluice.user=ann,sluice.task=summarize,shop=eu;ttl=1"
    assert (headers["traceparent"], headers["tracestate"]) == (TRACE, "vendor=1,other=2")
    assert "cookie" not in headers


def test_an_inner_context_inherits_what_it_does_not_set() -> None:
    script = """
    const found = { before: propagationHeaders() };
    acting({ user: "ann", session: "s-1", headers: { baggage: "shop=eu" } }, () => {
      found.inner = acting({ session: "s-2" }, propagationHeaders);
      found.outer = propagationHeaders();
    });
    return { ...found, after: propagationHeaders() };
    """
    found: dict[str, Any] = run(script)
    assert found["inner"] == {"baggage": "sluice.user=ann,sluice.session=s-2,shop=eu"}
    assert found["outer"] == {"baggage": "sluice.user=ann,sluice.session=s-1,shop=eu"}
    assert found["before"] == found["after"] == {}


def test_a_value_that_is_stated_twice_is_refused() -> None:
    script = """
    try {
      acting({ headers: { baggage: "sluice.user=ann,sluice.user=bob" } }, () => {});
    } catch (error) {
      return error.message;
    }
    """
    assert run(script) == "the baggage states `sluice.user` twice"


@pytest.mark.parametrize("value", ["a=b\r\nX-API-Key: other", "a=\x00", "ä=1", "no equals sign"])
def test_a_value_that_can_t_be_a_header_is_left_out(value: str) -> None:
    headers, _ = asked(headers={"baggage": value, "traceparent": value})
    assert headers["x-api-key"] == "k"
    assert "baggage" not in headers
    assert headers.get("traceparent", value) == value


@pytest.mark.parametrize(
    ("value", "read"), [("%", "%"), ("%zz", "%zz"), ("a%FFb", "a\ufffdb"), ("%F0%9F%A6%A5", "🦥")]
)
def test_broken_escapes_cause_no_failure(value: str, read: str) -> None:
    _, body = asked(headers={"baggage": f"sluice.user={value}"})
    assert body["user_id"] == read


def test_baggage_has_the_limits_of_the_standard() -> None:
    many = ",".join(f"m{number}=1" for number in range(500))
    large = ",".join(f"m{number}={'x' * 2000}" for number in range(8))
    for value in (many, large):
        headers, _ = asked(headers={"baggage": value})
        assert 0 < len(headers["baggage"]) <= 8192
        assert headers["baggage"].count(",") < 64
