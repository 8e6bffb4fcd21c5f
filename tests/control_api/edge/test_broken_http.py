"""Paths and methods that do not exist, bytes that are not HTTP, and clients that hang up."""

from __future__ import annotations

import json
import logging
import socket
import struct

import pytest

from policies.ground.process.json_logging import REQUEST_ID
from tests.control_api.edge.refused_requests import heads, nothing_recorded, raw_request, refused
from tests.support.control_api import ControlApi
from tests.support.waiting import until

__all__ = ["heads", "nothing_recorded"]  # fixtures


def test_an_unknown_path_is_404_with_the_error_body(api: ControlApi) -> None:
    for path in ("//", "/nothing", "/v1/nothing", "/v1/keys/", "//v1/keys", "/health/", "/V1/keys"):
        assert refused(api.call("GET", path), 404)["error"] == "Not Found"


def test_an_unsupported_method_is_405_and_names_the_supported_ones(api: ControlApi) -> None:
    for method in ("PUT", "TRACE", "OPTIONS", "PATCH", "PROPFIND"):
        answer = api.call(method, "/v1/keys")
        refused(answer, 405)
        assert answer.headers["Allow"] == "GET, HEAD, POST"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_head_has_get_s_length_and_no_body(api: ControlApi) -> None:
    for path in ("/health", "/v1/keys"):
        get, head = api.call("GET", path), api.call("HEAD", path)
        assert (head.status, head.raw) == (200, b"")
        assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.deep(stands_in="test_head_has_get_s_length_and_no_body")
def test_head_is_get_without_the_body(api: ControlApi) -> None:
    for path in ("/health", "/v1/keys", "/openapi.json"):
        get, head = api.call("GET", path), api.call("HEAD", path)
        assert (head.status, head.raw) == (200, b"")
        assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 10000 + b"\r\n\r\n",
        b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=range(7),
)
def test_bytes_that_are_not_http_are_400_with_the_error_body(
    api: ControlApi, request_: bytes
) -> None:
    answer = raw_request(api, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"400", answer
    assert b"Server: sluice" in head
    assert b"X-Request-ID: " in head
    assert json.loads(body)["code"] == 400


def test_a_chunked_body_that_breaks_off_is_400(api: ControlApi) -> None:
    head = f"POST /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: {api.admin_key}\r\n".encode()
    answer = raw_request(api, head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nnonsense\r\n")
    assert answer.split(b" ")[1] == b"400", answer


def test_expect_100_continue_is_answered_before_the_body_is_sent(api: ControlApi) -> None:
    body = b'{"name": 1, "scope": "read"}'
    head = (
        f"POST /v1/keys HTTP/1.1\r\nHost: x\r\nX-API-Key: {api.admin_key}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", api.port), timeout=5) as connection:
        connection.sendall(head)
        assert connection.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 422 ")


def test_a_valid_request_id_is_echoed_and_an_invalid_one_replaced(api: ControlApi) -> None:
    sound = api.call("GET", "/health", headers={"X-Request-ID": "trace-1:2/3"})
    assert sound.headers["X-Request-ID"] == "trace-1:2/3"
    made = {
        api.call("GET", "/health", headers={"X-Request-ID": bad}).headers["X-Request-ID"]
        for bad in ("a b", "x" * 129, "<script>", "")
    }
    assert len(made) == 4
    assert all(each and " " not in each and "<" not in each for each in made)


@pytest.mark.parametrize("resets", [False, True])
def test_a_client_that_hangs_up_mid_body_is_logged_in_one_line_with_its_id(
    api: ControlApi, caplog: pytest.LogCaptureFixture, resets: bool
) -> None:
    ids: list[str | None] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "sluice.http":
                ids.append(REQUEST_ID.get())

    noting = Noting()
    caplog.set_level(logging.INFO)
    logging.getLogger("sluice.http").addHandler(noting)
    try:
        with socket.create_connection(("127.0.0.1", api.port), timeout=5) as client:
            head = f"POST /v1/policies HTTP/1.1\r\nHost: a\r\nX-API-Key: {api.admin_key}\r\n"
            head += "X-Request-ID: mine\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"{")
            if resets:
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        until("an answer has an id", lambda: bool(ids))
        assert api.call("GET", "/health").status == 200
    finally:
        logging.getLogger("sluice.http").removeHandler(noting)
    assert ids == ["mine"]
    [record] = [each for each in caplog.records if each.name == "sluice.http"]
    assert (record.levelno, record.exc_info) == (logging.INFO, None)
    assert "disconnected" in record.getMessage()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
