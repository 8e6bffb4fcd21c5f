"""curl, the program."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.sidecar.clients.battery import Battery
from tests.sidecar.clients.client import NONE, GaveUp, Heard, act, heard
from tests.sidecar.clients.client_setup import ClientSetup
from tests.sidecar.clients.library import DOCUMENT

pytestmark = pytest.mark.skipif(servers.of_system("curl") is None, reason="no curl here")

_TIMED_OUT = 28
_FAILED = 22
_CURL = ("curl", "--silent", "--show-error", "--compressed", "--suppress-connect-headers")


def curl(urls: Sequence[str], *arguments: str) -> list[Heard]:
    """What curl heard of each address; of several answers to one, as with redirects, the last."""
    with tempfile.TemporaryDirectory() as folder:
        heads = Path(folder) / "heads"
        bodies = [Path(folder) / str(number) for number in range(len(urls))]
        command = [*_CURL, "--max-time", "10", "--dump-header", str(heads), *arguments]
        for url, body in zip(urls, bodies, strict=True):
            command += ["--output", str(body), url]
        ran = subprocess.run(command, capture_output=True, check=False, timeout=20)
        if ran.returncode:
            raise ConnectionError(ran.stderr.decode())
        blocks = heads.read_bytes().split(b"\r\n\r\n")[:-1]
        last = blocks[-len(urls) :]
        read = (each.read_bytes() if each.exists() else b"" for each in bodies)
        return [told(head, body) for head, body in zip(last, read, strict=True)]


def told(head: bytes, body: bytes) -> Heard:
    line, *fields = head.decode("latin-1").split("\r\n")
    pairs = (each.split(": ", 1) for each in fields)
    return heard(int(line.split(" ")[1]), [(name, value) for name, value in pairs], body)


class Curl:
    def get(self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False) -> Heard:
        arguments = [f"-H{name}: {value}" for name, value in fields.items()]
        return curl([url], *arguments, *(["--location"] if follow else []))[0]

    def head(self, url: str) -> Heard:
        # It would write the head as the body too.
        answer = curl([url], "--head")[0]
        return Heard(answer.status, answer.fields, b"")

    def post_json(self, url: str, value: Any) -> Heard:
        return curl([url], "--json", json.dumps(value))[0]

    def put(self, url: str, body: bytes) -> Heard:
        with tempfile.NamedTemporaryFile() as file:
            file.write(body)
            file.flush()
            return curl([url], "--upload-file", file.name)[0]

    def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        command = [*_CURL, "--include", "--upload-file", "-", url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            with running.stdin as sink:
                for part in parts:
                    sink.write(part)
                    sink.flush()
            # "100 Continue" stands before the answer.
            *_, head, body = running.stdout.read().split(b"\r\n\r\n")
        return told(head, body)

    def download(self, url: str, part: Callable[[bytes], None]) -> None:
        with subprocess.Popen([*_CURL, url], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            while each := running.stdout.read(65536):
                part(each)
        assert running.returncode == 0

    def session(self, urls: Sequence[str]) -> list[Heard]:
        return curl(urls, "--cookie", "")

    def events(self, url: str, event: Callable[[str], None]) -> None:
        with subprocess.Popen([*_CURL, "--no-buffer", url], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if line.strip():
                    event(line.decode().strip().removeprefix("data: "))
        assert running.returncode == 0

    def give_up(self, url: str, seconds: float) -> None:
        command = [*_CURL, "--max-time", str(seconds), url]
        found = subprocess.run(command, capture_output=True, check=False)
        if found.returncode == _TIMED_OUT:
            raise GaveUp(found.stderr.decode())

    def leave(self, url: str) -> None:
        with subprocess.Popen(
            [*_CURL, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as it:
            assert it.stdout is not None
            assert it.stdout.read(1000)
            it.stdout.close()


class TestCurl(Battery):
    client = Curl()
    http_2 = True

    async def test_the_exit_code_of_curl_shows_a_denial(self, setup: ClientSetup) -> None:
        def run(url: str) -> "subprocess.CompletedProcess[bytes]":
            command = [*_CURL, "--fail-with-body", url]
            return subprocess.run(command, capture_output=True, check=False)

        with setup.through() as base:
            found = await act(run, f"{base}/shut/secret")
        assert found.returncode == _FAILED
        assert json.loads(found.stdout)["decision"]["policy_name"] == "analysts-read"
        assert b"403" in found.stderr

    @pytest.mark.parametrize("setup", ["absolute"], indirect=True)
    async def test_a_plain_tunnel_is_judged_request_by_request(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            paths = ("/open/document", "/shut/secret", "/open/document")
            answers = await act(curl, [base + path for path in paths], "--proxytunnel")
        assert [each.status for each in answers] == [200, 403, 200]
        assert [each[0] for each in await setup.decisions()] == ["ALLOW", "DENY", "ALLOW"]
        assert setup.library.targets == ["/open/document"] * 2

    @pytest.mark.parametrize("setup", ["listen", "absolute"], indirect=True)
    async def test_an_offer_of_another_protocol_is_passed_over(self, setup: ClientSetup) -> None:
        with setup.through() as base:
            [answer] = await act(curl, [f"{base}/open/document"], "--http2")
        assert answer.body == DOCUMENT
        assert setup.library.log[0].values("upgrade") == []
