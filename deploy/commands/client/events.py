"""`sluice events`: searches the audit trail, or follows it as it grows. With `--follow`, each event
is printed once and in order, also across restarts of the control API.

Following relies on `seq`: a tenant's log is serial, so an event that is committed later has a
higher number. The API lists the newest events first, so the follower pages back to the last number
that it printed. It keeps only the newest page and the cursors of the others, and requests those
again, oldest first, so that memory use stays constant.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

from deploy.commands.client.client import Client, add_fields, common, given, paged
from deploy.commands.client.output import Columns, TextTable, cell, safe
from policies.ground.process.api_client import (
    PAGE,
    ApiResponse,
    RequestRefused,
    ServiceUnusable,
    UnusableArguments,
    first_line,
    segment,
)

INTERVAL = 1.0
"""The seconds between two requests for new events."""
TRANSIENT = (429, 500, 502, 503, 504)
"""HTTP statuses of errors that pass without action: the rate limit is exceeded, or the control API
or a gateway in front of it is restarting."""

Query = dict[str, Any]


def follow(client: Client, path: str, query: Query, most: int | None, columns: Columns) -> None:
    """Print the newest `most` events (all events if `most` is None), then each new event, until
    Ctrl-C."""
    follower, table = EventFollower(client, path, query, most), TextTable(columns)
    failing = False
    try:
        while True:
            try:
                for page in follower.new():
                    client.out.page(table, page)
            except ServiceUnusable as problem:
                # Try again only after an error that passes: a revoked key won't work again.
                if isinstance(problem, RequestRefused) and problem.status not in TRANSIENT:
                    raise
                # Report an outage once: one that lasts an hour must not fill the terminal.
                if not failing:
                    _print(f"{first_line(problem)}; trying again")
                failing = True
            else:
                if failing:
                    _print("the control API responds again")
                failing = False
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        return


class EventFollower:
    """Reads the tenant's events that match a filter, and remembers the last event that the caller
    received, so that each event is returned only once."""

    def __init__(self, client: Client, path: str, query: Query, most: int | None) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._most = most
        self._last = -1

    def new(self) -> Iterator[list[dict[str, Any]]]:
        """Yield pages of the new events, oldest first. An exception in between loses nothing: the
        next call continues after the last page that the caller has received."""
        newest, cursors = self._page_back()
        # A page at a cursor never changes, so it can be requested again. The newest page has no
        # cursor and grows, so it is kept.
        for cursor in reversed(cursors):
            yield from self._unseen(self._request(cursor).body)
        yield from self._unseen(newest)
        # The limit is for the events before the start only; later ones are all printed.
        self._most = None

    def _page_back(self) -> tuple[list[dict[str, Any]], list[Query]]:
        """Request pages, newest first, until one reaches the last event that the caller received.
        Return the newest page, and the queries that fetch the earlier pages again."""
        response = self._request({**self._query, "limit": self._limit(0)})
        newest = page = response.body
        self._detect_restore(newest)
        cursors: list[Query] = []
        count = len(page)
        while page and page[-1]["seq"] > self._last and (following := response.next()) is not None:
            if self._limit(count) == 0:
                break
            cursors.append({**following, "limit": self._limit(count)})
            response = self._request(cursors[-1])
            page = response.body
            count += len(page)
        return newest, cursors

    def _limit(self, count: int) -> int:
        """Return the number of rows to request next, after `count` rows have arrived."""
        return PAGE if self._most is None else max(0, min(PAGE, self._most - count))

    def _request(self, query: Query) -> ApiResponse:
        return self._client.api.request("GET", self._path, query)

    def _unseen(self, page: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the events of `page` that the caller has not received, oldest first; nothing if
        there are none. They count as received once the caller asks for the next page."""
        events = [event for event in reversed(page) if event["seq"] > self._last]
        if events:
            yield events
            # The caller has come back for more. After a failure, the next call repeats them.
            self._last = events[-1]["seq"]
            self._most = None

    def _detect_restore(self, newest: list[dict[str, Any]]) -> None:
        """Notice that the database was restored to an older state, and continue from there. The
        sign of a restore is that the newest number is below one that was printed: the log then
        assigns these numbers a second time."""
        # Otherwise the follower would print nothing until the log has caught up.
        if newest and newest[0]["seq"] < self._last:
            _print(f"the log was restored from entry {self._last} to {newest[0]['seq']}")
            self._last = newest[0]["seq"]


def _print(text: str) -> None:
    print(f"sluice: {safe(text)}", file=sys.stderr)


PATH = "/v1/audit/events"
COLUMNS = (
    ("TIME", "timestamp"),
    ("DECISION", "decision"),
    ("ROLE", "agent_role"),
    ("AGENT", "agent_id"),
    ("USER", "user_id"),
    ("SOURCE", "source_id"),
    ("LEVEL", "sensitivity_level"),
    ("ID", "event_id"),
    ("REASON", "reason"),
)
FILTERS = {
    "role": ("agent_role", "only events of this role"),
    "agent": ("agent_id", "only events of this agent"),
    "user": ("user_id", "only events of this user"),
    "source": ("source_id", "only events about this source"),
    "session": ("session_id", "only events of this session"),
    "policy": ("policy_name", "only events decided by this policy or check"),
    "from": ("from", "only events at or after this time"),
    "to": ("to", "only events before this time"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Lists audit events, newest first, or follows them, oldest first."
    paged(common(parser, _events))
    parser.add_argument(
        "--decision", choices=("ALLOW", "DENY"), help="only events with this decision"
    )
    add_fields(parser, FILTERS)
    parser.add_argument(
        "--event", metavar="ID", help="show this event in full, with the reasons of its decision"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="print the newest --limit events, then new ones as they arrive, until Ctrl-C; with "
        "--json, one JSON line each",
    )


def _events(client: Client, options: argparse.Namespace) -> int:
    query = given(options, FILTERS)
    if options.decision is not None:
        query["decision"] = options.decision
    if options.event is not None:
        if query or options.follow or options.all:
            raise UnusableArguments("--event shows one event: leave filters, --all, --follow out")
        return _show(client, options.event)
    if not options.follow:
        return client.list(PATH, query, options, COLUMNS)
    if options.to is not None:
        raise UnusableArguments("--to can't be used with --follow, which never ends; remove it")
    follow(client, PATH, query, None if options.all else options.limit, COLUMNS)
    return 0


def _show(client: Client, event_id: str) -> int:
    """Print one event, then the outcome of each check of its decision. Returns the exit code 0."""
    found = client.api.request("GET", f"{PATH}/{segment(event_id)}").body
    if client.out.as_json:
        client.out.members(found)
        return 0
    client.out.members(found["event"])
    explained = found["explain"]
    if explained is None:
        # An old record, or one of a question about an agent that the sidecar does not act for, has
        # no facts to explain it by. The event itself says what was decided.
        client.out.members({"explanation": f"none: {found['unexplained']}"})
        return 0
    client.out.members({each["check"]: _outcome(each) for each in explained["checks"]})
    miss = explained["nearest_miss"]
    hints = {"nearest miss": miss and miss["change"], "suggestion": found["suggestion"]}
    client.out.members({name: text for name, text in hints.items() if text})
    return 0


def _outcome(check: dict[str, Any]) -> str:
    facts = "; ".join(f"{name}={cell(value)}" for name, value in check["facts"].items())
    return f"{check['outcome']}: {facts}" if facts else str(check["outcome"])
