"""Requests to a control API that does not answer."""

import socket

import pytest

from policies.ground.process import api_client
from policies.ground.process.api_client import RemoteApi, ServiceUnusable


def test_a_request_says_that_it_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api_client, "AFTER", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as hung:  # nothing accepts
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        with pytest.raises(ServiceUnusable, match="it took too long"):
            RemoteApi(url, "key").ask("GET", "/v1/policies", seconds=0.5)
    waits = f"sluice: no response from `{url}` yet; waiting up to 0 s more\n"
    assert capsys.readouterr().err == waits
