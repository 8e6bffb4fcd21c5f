"""Follows the audit trail: each event once, in order, also across restarts of the control API.

Rests on `seq`: a tenant's log is serial, so an event that is committed later has a higher number.
The API lists newest first, so what is new is found by walking back to the last number shown. Of a
long stretch only the newest page and the cursors are kept; the others are asked for again, the
oldest first, so memory stays flat. Knows the log's order, no filter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from deploy.client.client import Client
from deploy.client.connection import PAGE, ApiResponse, ApiUnreachable, RequestRefused
from deploy.client.output import Columns, TextTable, safe

INTERVAL = 1.0
PASSING = (429, 500, 502, 503, 504)
"""What a control API that is being started again, or a gateway before it, answers meanwhile."""

Query = dict[str, Any]


def follow(client: Client, path: str, query: Query, most: int | None, columns: Columns) -> None:
    """Prints the newest `most` events, or all there are, then new ones, until Ctrl-C."""
    trail, table = EventFollower(client, path, query, most), TextTable(columns)
    away = False
    try:
        while True:
            try:
                for page in trail.new():
                    client.out.page(table, page)
            except (ApiUnreachable, RequestRefused) as problem:
                if isinstance(problem, RequestRefused) and problem.status not in PASSING:
                    raise
                if not away:
                    _say(f"{problem}; trying again")
                away = True
            else:
                if away:
                    _say("the control API answers again")
                away = False
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        return


class EventFollower:
    """A tenant's events by a filter, and how far they were handed out."""

    def __init__(self, client: Client, path: str, query: Query, most: int | None) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._most = most
        self._last = -1

    def new(self) -> Iterator[list[dict[str, Any]]]:
        """Pages of what was not handed out yet, oldest first. An exception in the middle loses
        nothing: the next call goes on after the last page that was handed out."""
        newest, cursors = self._walk_back()
        # A page below a cursor is the same whenever it is asked for, and the newest one, which has
        # no cursor and grows, is the one that is kept.
        for cursor in reversed(cursors):
            yield from self._hand_out(self._ask(cursor).body)
        yield from self._hand_out(newest)
        self._most = None

    def _walk_back(self) -> tuple[list[dict[str, Any]], list[Query]]:
        """The newest page, and the queries of those before it that hold something new."""
        answer = self._ask({**self._query, "limit": self._limit(0)})
        newest = page = answer.body
        self._notice_restored(newest)
        cursors: list[Query] = []
        held = len(page)
        while page and page[-1]["seq"] > self._last and (following := answer.next()) is not None:
            if self._limit(held) == 0:
                break
            cursors.append({**following, "limit": self._limit(held)})
            answer = self._ask(cursors[-1])
            page = answer.body
            held += len(page)
        return newest, cursors

    def _limit(self, held: int) -> int:
        """How many more rows to ask for."""
        return PAGE if self._most is None else max(0, min(PAGE, self._most - held))

    def _ask(self, query: Query) -> ApiResponse:
        return self._client.api.ask("GET", self._path, query)

    def _hand_out(self, page: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        events = [event for event in reversed(page) if event["seq"] > self._last]
        if events:
            yield events
            self._last = events[-1]["seq"]
            self._most = None

    def _notice_restored(self, newest: list[dict[str, Any]]) -> None:
        """A number below one that was shown: the database was restored to an older state, and gives
        the numbers after it again."""
        if newest and newest[0]["seq"] < self._last:
            _say(f"the log was put back from entry {self._last} to {newest[0]['seq']}")
            self._last = newest[0]["seq"]


def _say(text: str) -> None:
    print(f"sluice: {safe(text)}", file=sys.stderr)
