"""The search for decisions, its live tail, and the downloads of what matches."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi


@pytest.fixture(scope="module", autouse=True)
def decided(api: ControlApi) -> None:
    """Sixty decisions, every third a denial."""
    for number in range(60):
        source = "payroll" if number % 3 == 0 else "handbook"
        api.evaluate(source_id=source, user_id=f"user-{number % 2}")


def test_decisions_are_listed_newest_first_and_paged(console: Visitor) -> None:
    first = console.get("/console/decisions")
    assert first.heading == "Decisions"
    rows = first.main.find("tbody").find_all("tr")
    assert len(rows) == 50
    onwards = first.main.find("a", rel="next").attributes["href"]
    second = console.get(onwards)
    assert len(second.main.find("tbody").find_all("tr")) == 10
    times = [row.find("time").attributes["datetime"] for row in rows]
    assert times == sorted(times, reverse=True)


def test_a_search_is_repeated_by_its_address(console: Visitor) -> None:
    shown = console.get("/console/decisions?decision=DENY&user_id=user-0")
    rows = shown.main.find("tbody").find_all("tr")
    assert len(rows) == 10
    assert all("DENY" in row.text and "payroll" in row.text for row in rows)
    assert shown.main.find("input", name="user_id").attributes["value"] == "user-0"


def test_the_search_leads_from_an_event_s_id_to_its_decision(
    api: ControlApi, console: Visitor
) -> None:
    field = console.get("/console/decisions").main.find("input", name="event_id")
    assert field.attributes["id"] == "f-event_id"
    event_id = api.admin("GET", "/v1/audit/events?limit=1")[0]["event_id"]
    shown = console.get(f"/console/decisions?event_id=+{event_id}+")
    assert shown.raw == console.get(f"/console/decision?id={event_id}").raw
    assert event_id in shown.text


def test_an_invalid_search_value_is_refused_and_shown(console: Visitor) -> None:
    shown = console.get("/console/decisions?from=yesterday")
    assert shown.status == 422
    assert "from" in shown.text
    assert "`yesterday` is not a time; expected how long ago (`30s`" in shown.text
    assert shown.main.find("input", name="from").attributes["value"] == "yesterday"


def test_times_are_typed_in_the_forms_that_commands_take(console: Visitor) -> None:
    for query, rows in (("from=1h", 50), ("from=2000-01-01", 50), ("to=1h", 0)):
        shown = console.get(f"/console/decisions?{query}")
        assert shown.status == 200, query
        assert sum(len(each.find_all("tr")) for each in shown.main.find_all("tbody")) == rows, query
        name, _, typed = query.partition("=")
        assert shown.main.find("input", name=name).attributes["value"] == typed
    download = "/console/decisions/download?format=csv"
    assert len(console.get(f"{download}&from=1h").raw.splitlines()) > 50
    assert len(console.get(f"{download}&to=1h").raw.splitlines()) <= 1


def test_only_matching_decisions_are_downloaded(console: Visitor) -> None:
    shown = console.get("/console/decisions/download?format=cloudevents&decision=DENY")
    assert shown.status == 200
    assert "attachment" in shown.headers["Content-Disposition"]
    lines = [json.loads(line) for line in shown.raw.splitlines()]
    assert len(lines) == 20
    assert {line["type"] for line in lines} == {"sluice.decision.deny"}
    assert console.get("/console/decisions/download?format=exe").status == 422


def test_a_tail_shows_matching_decisions_in_order(api: ControlApi, console: Visitor) -> None:
    messages = _tail(api, console, "?decision=DENY")
    next(messages)
    for source in ("payroll", "handbook", "payroll"):
        api.evaluate(source_id=source, user_id="tailed")
    seen: list[int] = []
    while len(seen) < 2:
        events = next(messages)["events"]
        assert all(event["decision"] == "DENY" for event in events)
        seen += [event["seq"] for event in events]
    assert seen == sorted(seen)


def test_a_tail_continues_where_it_broke_off(api: ControlApi, console: Visitor) -> None:
    before = api.events("?limit=1")[0]["seq"]
    api.evaluate(user_id="meanwhile")
    messages = _tail(api, console, "?user_id=meanwhile", last=str(before + 1))
    # It is in the first message, or in the next if a tail of before has not read it yet.
    seen = next(messages)["events"] or next(messages)["events"]
    assert [event["user_id"] for event in seen] == ["meanwhile"]


def test_a_tail_begins_where_its_page_ends(api: ControlApi, console: Visitor) -> None:
    """With what is recorded after the page was made and before the tail begins."""
    api.evaluate(user_id="before")
    page = console.get("/console/decisions?user_id=before")
    query = page.main.find("div", id="tail").attributes["data-live"].partition("/live")[2]
    between = [api.evaluate(user_id="before")["event_id"] for _ in range(2)]
    messages = _tail(api, console, query)
    seen = next(messages)["events"]
    after = api.evaluate(user_id="before")["event_id"]
    while after not in [each["event_id"] for each in seen]:
        seen += next(messages)["events"]
    assert [each["event_id"] for each in seen] == [*between, after]


def test_a_tail_needs_a_session(api: ControlApi) -> None:
    accept = {"Accept": "text/event-stream"}
    shown = Visitor(api).send("GET", "/console/decisions/live", None, accept)
    assert shown.status == 401


def _tail(
    api: ControlApi, visitor: Visitor, query: str, last: str | None = None
) -> Iterator[dict[str, list[dict[str, Any]]]]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    headers = {"Host": visitor.host, "Cookie": cookie, "Accept": "text/event-stream"}
    if last is not None:
        headers["Last-Event-ID"] = last
    connection.request("GET", f"/console/decisions/live{query}", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.headers["Content-Type"] == "text/event-stream"
    try:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        connection.close()
