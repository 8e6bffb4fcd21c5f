"""Node's fetch and its node:http, each in a process of its own (`node_client.mjs`)."""

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.sidecar.clients.battery import Battery
from tests.sidecar.clients.client import NONE, GaveUp, Heard, heard

SCRIPT = Path(__file__).with_name("node_client.mjs")

pytestmark = pytest.mark.skipif(servers.find("node") is None, reason=servers.how("node"))


def told(line: bytes) -> Heard:
    said = json.loads(line)
    return heard(said["status"], said["fields"], base64.b64decode(said["body"]))


class Node:
    """`kind` is `fetch` or `http`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def _command(self, call: str, *given: str) -> list[str]:
        return [str(servers.need("node")), str(SCRIPT), self._kind, call, *given]

    def _said(self, call: str, *given: str, body: bytes | None = None) -> list[bytes]:
        command = self._command(call, *given)
        ran = subprocess.run(command, input=body, capture_output=True, check=False, timeout=20)
        if ran.returncode:
            raise ConnectionError(ran.stderr.decode())
        return ran.stdout.splitlines()

    def get(self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False) -> Heard:
        given = ("follow",) if follow else ()
        return told(self._said("get", url, json.dumps(dict(fields)), *given)[0])

    def head(self, url: str) -> Heard:
        return told(self._said("head", url)[0])

    def post_json(self, url: str, value: Any) -> Heard:
        return told(self._said("post", url, json.dumps(value))[0])

    def put(self, url: str, body: bytes) -> Heard:
        return told(self._said("put", url, body=body)[0])

    def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        command = self._command("upload", url)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            assert running.stdin is not None
            assert running.stdout is not None
            with running.stdin as sink:
                for part in parts:
                    sink.write(part)
                    sink.flush()
            return told(running.stdout.read())

    def download(self, url: str, part: Callable[[bytes], None]) -> None:
        with subprocess.Popen(self._command("stream", url), stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            while each := running.stdout.read(65536):
                part(each)
        assert running.returncode == 0

    def session(self, urls: Sequence[str]) -> list[Heard]:
        return [told(line) for line in self._said("session", *urls)]

    def events(self, url: str, event: Callable[[str], None]) -> None:
        with subprocess.Popen(self._command("stream", url), stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if line.strip():
                    event(line.decode().strip().removeprefix("data: "))
        assert running.returncode == 0

    def give_up(self, url: str, seconds: float) -> None:
        [name] = self._said("patience", url, str(int(seconds * 1000)))
        if name in (b"TimeoutError", b"AbortError"):
            raise GaveUp(name)

    def leave(self, url: str) -> None:
        [size] = self._said("leave", url)
        assert int(size)


class TestFetch(Battery):
    client = Node("fetch")
    tunnels = True


class TestHttp(Battery):
    client = Node("http")
