"""requests, as agents' tools use it most."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import requests

from tests.sidecar.clients.battery import Battery
from tests.sidecar.clients.client import NONE, GaveUp, Heard, heard
from tests.sidecar.clients.client_setup import ALL_WAYS


def told(answer: requests.Response) -> Heard:
    # `headers` would make one of two fields of a name.
    return heard(answer.status_code, answer.raw.headers.items(), answer.content)


class Requests:
    def get(self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False) -> Heard:
        return told(requests.get(url, headers=fields, allow_redirects=follow, timeout=10))

    def head(self, url: str) -> Heard:
        return told(requests.head(url, timeout=10))

    def post_json(self, url: str, value: Any) -> Heard:
        return told(requests.post(url, json=value, timeout=10))

    def put(self, url: str, body: bytes) -> Heard:
        return told(requests.put(url, data=body, timeout=10))

    def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        return told(requests.put(url, data=parts, timeout=10))

    def download(self, url: str, part: Callable[[bytes], None]) -> None:
        with requests.get(url, stream=True, timeout=10) as answer:
            for each in answer.iter_content(65536):
                part(each)

    def session(self, urls: Sequence[str]) -> list[Heard]:
        with requests.Session() as session:
            return [told(session.get(url, timeout=10)) for url in urls]

    def events(self, url: str, event: Callable[[str], None]) -> None:
        with requests.get(url, stream=True, timeout=10) as answer:
            for line in answer.iter_lines(chunk_size=1):
                if line:
                    event(line.decode().removeprefix("data: "))

    def give_up(self, url: str, seconds: float) -> None:
        try:
            requests.get(url, timeout=seconds)
        except requests.Timeout as error:
            raise GaveUp from error

    def leave(self, url: str) -> None:
        with requests.get(url, stream=True, timeout=10) as answer:
            assert next(answer.iter_content(1000))


class TestRequests(Battery):
    client = Requests()
    ways = ALL_WAYS
