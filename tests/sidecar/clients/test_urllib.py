"""The standard library: urllib.request, a connection a request, and http.client where it has no
way of its own."""

import gzip
import http.client
import http.cookiejar
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from typing import IO, Any, cast

from tests.sidecar.clients.battery import Battery
from tests.sidecar.clients.client import NONE, GaveUp, Heard, heard


class Staying(urllib.request.HTTPRedirectHandler):
    """Follows nothing, as its documentation has it."""

    def redirect_request(
        self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def opened(
    asked: urllib.request.Request, *handlers: urllib.request.BaseHandler, timeout: float = 10
) -> http.client.HTTPResponse:
    """The answer, whatever its status: urllib raises for every status but the 200s."""
    opener = urllib.request.build_opener(*handlers)
    try:
        return cast(http.client.HTTPResponse, opener.open(asked, timeout=timeout))
    except urllib.error.HTTPError as error:
        return cast(http.client.HTTPResponse, error)


def told(answer: http.client.HTTPResponse) -> Heard:
    with answer:
        body = answer.read()
        if answer.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        return heard(answer.status, answer.headers.items(), body)


class Urllib:
    def get(self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False) -> Heard:
        asked = urllib.request.Request(url, headers=dict(fields))
        return told(opened(asked) if follow else opened(asked, Staying()))

    def head(self, url: str) -> Heard:
        return told(opened(urllib.request.Request(url, method="HEAD")))

    def post_json(self, url: str, value: Any) -> Heard:
        fields = {"Content-Type": "application/json"}
        return told(opened(urllib.request.Request(url, json.dumps(value).encode(), fields)))

    def put(self, url: str, body: bytes) -> Heard:
        return told(opened(urllib.request.Request(url, body, method="PUT")))

    def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        return told(opened(urllib.request.Request(url, parts, method="PUT")))

    def download(self, url: str, part: Callable[[bytes], None]) -> None:
        with opened(urllib.request.Request(url)) as answer:
            while each := answer.read(65536):
                part(each)

    def session(self, urls: Sequence[str]) -> list[Heard]:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        opener = urllib.request.build_opener(cookies)
        return [told(opener.open(url, timeout=10)) for url in urls]

    def events(self, url: str, event: Callable[[str], None]) -> None:
        with opened(urllib.request.Request(url)) as answer:
            for line in answer:
                if line.strip():
                    event(line.decode().strip().removeprefix("data: "))

    def give_up(self, url: str, seconds: float) -> None:
        try:
            opened(urllib.request.Request(url), timeout=seconds)
        except TimeoutError as error:
            raise GaveUp from error

    def leave(self, url: str) -> None:
        with opened(urllib.request.Request(url)) as answer:
            assert answer.read(1000)


class TestUrllib(Battery):
    client = Urllib()
