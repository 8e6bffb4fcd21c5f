"""What the client makes of a control API that is slow, or of something else at its address."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from policies.ground.process import api_client
from policies.ground.process.api_client import ControlApiClient, ServiceUnusable


@contextmanager
def answering(response: bytes, after: float = 0.0) -> Iterator[str]:
    """An address where one request is answered with these bytes, `after` seconds."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            threading.Event().wait(after)
            connection.sendall(response)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_request_announces_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api_client, "NOTICE_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as hung:  # nothing accepts
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        with pytest.raises(ServiceUnusable, match="the request timed out"):
            ControlApiClient(url, "key").request("GET", "/v1/policies", seconds=0.5)
    waits = f"sluice: no response from `{url}` yet; waiting up to 0 s more\n"
    assert capsys.readouterr().err == waits
    # The time for which the API was asked to hold the request open is not waiting.
    for held, said in ((0.0, "waiting up to 27 s more"), (25.0, "")):
        with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", after=0.1) as url:
            response = ControlApiClient(url).request("GET", "/v1/keys", seconds=27, held=held)
        assert response.body == []
        shown = f"sluice: no response from `{url}` yet; {said}\n" if said else ""
        assert capsys.readouterr().err == shown


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"202 A\r\nContent-Length: 2\r\n\r\n{}", {}),
        (b"204 N\r\n\r\n", None),
        (b"200 O\r\nContent-Length: 6\r\n\r\n<html>", "is not JSON: is it a control API"),
        (b"200 O\r\nContent-Length: 20\r\n\r\n" + b"1" * 20, "is larger than 16 bytes"),
        (b"200 O\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", "broke off: IncompleteRead"),
        (b"\x1b[31m\r\n\r\n", r"no response from .*: \\x1b\[31m"),
    ],
)
def test_any_success_status_with_json_is_a_response(
    response: bytes, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_client, "MAX_RESPONSE", 16)
    prefix = b"" if response.startswith(b"\x1b") else b"HTTP/1.1 "
    with answering(prefix + response) as url:
        client = ControlApiClient(url)
        if isinstance(expected, str):
            with pytest.raises(ServiceUnusable, match=expected):
                client.request("GET", "/v1/policies")
        else:
            assert client.request("GET", "/v1/policies").body == expected
