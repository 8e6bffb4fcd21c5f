"""Follows the audit trail: each event once, in order, also across restarts of the control API.

This relies on `seq`: a tenant's log is serial, so an event that is committed later has a higher
number. The API lists the newest events first, so the follower pages back to the last number that it
printed. It keeps only the newest page and the cursors of the others, and requests those again,
oldest first, so that memory use stays constant. Knows the log's order, but no filter.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from deploy.commands.client.client import Client
from deploy.commands.client.connection import PAGE, ApiResponse, ApiUnreachable, RequestRefused
from deploy.commands.client.output import Columns, TextTable, safe

INTERVAL = 1.0
"""Seconds between two requests for new events."""
TRANSIENT = (429, 500, 502, 503, 504)
"""Statuses that pass by themselves: over the rate limit, or from a restarting control API or a
gateway in front of it."""

Query = dict[str, Any]


def follow(client: Client, path: str, query: Query, most: int | None, columns: Columns) -> None:
    """Print the newest `most` events, or all if `most` is None; then new ones until Ctrl-C."""
    follower, table = EventFollower(client, path, query, most), TextTable(columns)
    failing = False
    try:
        while True:
            try:
                for page in follower.new():
                    client.out.page(table, page)
            except (ApiUnreachable, RequestRefused) as problem:
                # Try again only after an error that passes: a revoked key won't work again.
                if isinstance(problem, RequestRefused) and problem.status not in TRANSIENT:
                    raise
                # Report an outage once: one that lasts an hour must not fill the terminal.
                if not failing:
                    _print(f"{problem}; trying again")
                failing = True
            else:
                if failing:
                    _print("the control API responds again")
                failing = False
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        return


class EventFollower:
    """Reads the tenant's events that match a filter, and remembers the last one that the caller
    received."""

    def __init__(self, client: Client, path: str, query: Query, most: int | None) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._most = most
        self._last = -1

    def new(self) -> Iterator[list[dict[str, Any]]]:
        """Pages of new events, oldest first. An exception in between loses nothing: the next call
        continues after the last page that the caller has received."""
        newest, cursors = self._page_back()
        # A page at a cursor never changes, so it can be requested again. The newest page has no
        # cursor and grows, so it is kept.
        for cursor in reversed(cursors):
            yield from self._unseen(self._request(cursor).body)
        yield from self._unseen(newest)
        # The limit is for the events before the start only; later ones are all printed.
        self._most = None

    def _page_back(self) -> tuple[list[dict[str, Any]], list[Query]]:
        """The newest page, and the queries of the earlier pages with new events."""
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
        """The number of rows to request next, after `count` rows."""
        return PAGE if self._most is None else max(0, min(PAGE, self._most - count))

    def _request(self, query: Query) -> ApiResponse:
        return self._client.api.request("GET", self._path, query)

    def _unseen(self, page: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """The events of `page` that the caller has not received, oldest first, if there are any.
        They count as received once the caller asks for more."""
        events = [event for event in reversed(page) if event["seq"] > self._last]
        if events:
            yield events
            # The caller has come back for more. After a failure, the next call repeats them.
            self._last = events[-1]["seq"]
            self._most = None

    def _detect_restore(self, newest: list[dict[str, Any]]) -> None:
        """Notices that the database was restored to an older state: the newest number is below one
        that was printed. The log assigns the numbers after the newest one again."""
        # Otherwise the follower would print nothing until the log has caught up.
        if newest and newest[0]["seq"] < self._last:
            _print(f"the log was restored from entry {self._last} to {newest[0]['seq']}")
            self._last = newest[0]["seq"]


def _print(text: str) -> None:
    print(f"sluice: {safe(text)}", file=sys.stderr)
