"""Random requests to random routes: no internal error, and no status that is not described."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from control_api.edge.openapi_responses import statuses
from control_api.edge.route import Route
from control_api.routes import ROUTES
from tests.control_api.edge.expected import CREATES
from tests.support.control_api import ControlApi
from tests.support.properties import chance, few
from tests.support.waiting import PATIENCE

TEXTS = [
    "", "a", "none", "\x00", "\ud7ff", "a" * 256, "a" * 257, "ü", "%", "%00", "..", "/", "'; --",
    "low", "ALLOW", "read", "support", "s1", "\u202e", "😀" * 50, "1", "-1", "9" * 20, "null",
    "true", "*", "a\nb", "\x7f", "2026-01-01T00:00:00.000000Z", "9999-99-99T00:00:00.000000Z",
    "0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "WzEsImEiXQ", "WzFd",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**18, 1.5, 1e308]


class Caller:
    """Makes random requests."""

    def __init__(self, known: list[str]) -> None:
        self.random = chance("any request")
        self.texts = TEXTS + known

    def value(self, depth: int = 0) -> Any:
        roll = self.random.random()
        if roll < 0.5 or depth > 3:
            return self.random.choice(self.texts)
        if roll < 0.65:
            return self.random.choice(NUMBERS)
        if roll < 0.75:
            return self.random.choice([None, True, False])
        count = self.random.randint(0, 3)
        if roll < 0.9:
            return [self.value(depth + 1) for _ in range(count)]
        return {self.random.choice(self.texts): self.value(depth + 1) for _ in range(count)}

    def target(self, route: Route) -> str:
        path = route.path
        for name in route.parameters:
            safe = "%" if self.random.random() < 0.1 else ""
            text = quote(self.random.choice(self.texts) or "x", safe=safe)
            path = path.replace("{" + name + "}", text)
        names = self.random.sample(route.query, min(len(route.query), self.random.randint(0, 3)))
        fields = [f"{name}={quote(self.random.choice(self.texts))}" for name in names]
        return f"{path}?{'&'.join(fields)}" if fields else path

    def body(self, route: Route) -> bytes | None:
        if not route.has_body:
            return None
        if self.random.random() < 0.1:
            return json.dumps(self.value()).encode()
        body = dict(route.request_type.example) if self.random.random() < 0.7 else {}
        count = min(len(route.body), self.random.randint(0, 3))
        for name in self.random.sample(route.body, count):
            body[name] = self.value()
        return json.dumps(body).encode()


@pytest.mark.deep(stands_in="test_a_nul_in_any_text_is_the_callers_fault")
def test_no_request_finds_a_bug_or_an_undescribed_status(either: ControlApi) -> None:
    either.approved("support")
    event_id = either.evaluate(session_id="s1")["event_id"]
    policy_id = either.admin("GET", "/v1/policies")[0]["policy_id"]
    caller = Caller([event_id, policy_id])
    # A long poll would only cost time.
    routes = [route for route in ROUTES if route.name != "fetch_policy_set"]
    connection = http.client.HTTPConnection("127.0.0.1", either.port, timeout=PATIENCE)
    headers = {"X-API-Key": either.admin_key, "Content-Type": "application/json"}
    for _ in range(few(3000)):
        route = caller.random.choice(routes)
        target, body = caller.target(route), caller.body(route)
        connection.request(route.method, target, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        sent = (route.method, target, body, said)
        assert answer.status in {route.status, *statuses(route)}, sent
        assert answer.status < 500, sent
    connection.close()
    either.verified()


def _with_nul(body: Any) -> Iterator[Any]:
    """The same body several times, each time with a NUL in another of its texts."""
    if isinstance(body, str):
        yield f"{body}\0"
    if isinstance(body, list | dict):
        items = body.items() if isinstance(body, dict) else enumerate(body)
        for place, value in items:
            for other in _with_nul(value):
                changed = body.copy()
                changed[place] = other
                yield changed


def _targets_with_nul(route: Route) -> Iterator[str]:
    """The route's target several times, each time with a NUL in another parameter."""
    plain = route.path
    for name in route.parameters:
        plain = plain.replace("{" + name + "}", "any")
        yield route.path.replace("{" + name + "}", "any%00").replace("{", "").replace("}", "")
    for name in route.query:
        yield f"{plain}?{name}=any%00"


def test_a_nul_in_any_text_is_the_callers_fault(either: ControlApi) -> None:
    """PostgreSQL stores no NUL and looks none up: what lets one through to it is answered 503."""
    asked: list[tuple[Route, str, Any]] = []
    for route in ROUTES:
        body = route.request_type.example if route.has_body else None
        asked += [(route, target, body) for target in _targets_with_nul(route)]
        path = route.path.replace("{", "").replace("}", "")
        asked += [(route, path, each) for each in _with_nul(body)]
    assert len(asked) > 100
    # What there is not is answered as the route says, too.
    absent = [
        route for route in ROUTES if route.parameters and (route.method, route.path) not in CREATES
    ]
    asked += [(route, route.path, route.request_type.example) for route in absent]
    connection = http.client.HTTPConnection("127.0.0.1", either.port, timeout=PATIENCE)
    headers = {"X-API-Key": either.admin_key, "Content-Type": "application/json"}
    for route, target, body in asked:
        connection.request(route.method, target, body and json.dumps(body), headers)
        answer = connection.getresponse()
        sent = (route.method, target, body, answer.status, answer.read())
        assert answer.status < 500, sent
        assert answer.status in {route.status, *statuses(route)}, sent
    connection.close()
