"""Requests that are refused: the body of their errors, and the check that the log has nothing of
them."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.control_api import Answer, ControlApi


@pytest.fixture(scope="module")
def heads(api: ControlApi) -> Iterator[Callable[[], list[Any]]]:
    """Reads the head of every tenant's log from the database. The whole log is verified once, when
    the module's tests are over: to do so after each of them would cost ten times the test."""
    before = api.verified()["total"]
    with closing(sqlite3.connect(api.directory / "data" / "sluice.db")) as database:
        yield lambda: database.execute("SELECT * FROM log_heads ORDER BY tenant_id").fetchall()
    assert api.verified()["total"] == before


@pytest.fixture(autouse=True)
def nothing_recorded(heads: Callable[[], list[Any]]) -> Iterator[None]:
    """No request in this module adds to the log."""
    before = heads()
    yield
    after = heads()
    assert after == before, f"the logs' heads were {before} and are {after}"


def refused(answer: Answer, status: int) -> dict[str, Any]:
    """The error body, checked for its one shape."""
    assert answer.status == status, answer.raw
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Server"] == "sluice"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Request-ID"]
    body: dict[str, Any] = answer.body
    assert body["code"] == status
    assert set(body) <= {"error", "message", "code", "details"}
    assert all(isinstance(body[name], str) for name in body if name != "code")
    return body


def raw_request(api: ControlApi, request: bytes) -> bytes:
    """The response to these bytes, which need not be a valid request."""
    received = b""
    with socket.create_connection(("127.0.0.1", api.port), timeout=10) as connection:
        connection.sendall(request)
        while b'"code":' not in received:
            chunk = connection.recv(65536)
            if not chunk:
                break
            received += chunk
    return received
