"""A control API over https: whom a command believes, and what it shows of itself."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from deploy.client.run import run
from tests.sidecar.proxy.certificates import authority


class Answers(BaseHTTPRequestHandler):
    """Answers every list with none; a test sees that the key came by the header."""

    def do_GET(self) -> None:
        assert self.headers["X-API-Key"] == "slc_tls"
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        """Nothing: standard error is what the tests read."""


@contextmanager
def serving(context: ssl.SSLContext) -> Iterator[str]:
    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that does not believe us breaks off: it is what some tests are for."""

    server = Server(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fleet(url: str, *words: str) -> int:
    return run("fleet", ["--url", url, "--json", *words], {"SLUICE_API_KEY": "slc_tls"})


def test_only_a_certificate_of_the_named_authority_is_believed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = authority("ours"), authority("theirs")
    with serving(ours.server("127.0.0.1")) as url:
        assert fleet(url, "--ca", str(ours.path)) == 0
        assert capsys.readouterr() == ("[]\n", "")
        for words in ((), ("--ca", str(theirs.path))):
            assert fleet(url, *words) == 1
            assert "--ca FILE names the authority" in capsys.readouterr().err
    with serving(ours.server("another.example")) as url:
        assert fleet(url, "--ca", str(ours.path)) == 1
        assert "not valid for '127.0.0.1'" in capsys.readouterr().err


def test_a_client_certificate_is_shown_where_one_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = authority("ours")
    pair = ours.issue("operator")
    shown = ("--cert", str(pair.certificate), "--cert-key", str(pair.key))
    with serving(ours.server("127.0.0.1", asks=True)) as url:
        assert fleet(url, "--ca", str(ours.path), *shown) == 0
        assert fleet(url, "--ca", str(ours.path)) == 1
        assert "no answer from" in capsys.readouterr().err


def test_files_that_can_not_be_used_are_refused_before_a_connection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    for words in (
        ("--ca", str(tmp_path / "none")),
        ("--ca", str(tmp_path / "empty")),
        ("--cert", str(tmp_path / "empty")),
        ("--cert-key", str(tmp_path / "empty")),
    ):
        assert fleet("https://192.0.2.1", *words) == 2
        assert "--c" in capsys.readouterr().err
        assert fleet("http://127.0.0.1:1", *words) == 2
        assert "are for https://" in capsys.readouterr().err
