"""Requests that are refused: the body of their errors, and the check that the log has nothing of
them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.control_api.running_api import Answer, ControlApi


@pytest.fixture(autouse=True)
def nothing_recorded(api: ControlApi) -> Iterator[None]:
    """No request in this module adds to the log."""
    before = api.verified()["total"]
    yield
    assert api.verified()["total"] == before


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
