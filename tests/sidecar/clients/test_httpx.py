"""httpx, blocking and on an event loop: what the clients of most vector stores and models are made
of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx

from tests.sidecar.clients.battery import Battery
from tests.sidecar.clients.client import NONE, GaveUp, Heard, heard, one_by_one


def told(answer: httpx.Response) -> Heard:
    return heard(answer.status_code, answer.headers.multi_items(), answer.content)


class Httpx:
    def get(self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False) -> Heard:
        return told(httpx.get(url, headers=fields, follow_redirects=follow))

    def head(self, url: str) -> Heard:
        return told(httpx.head(url))

    def post_json(self, url: str, value: Any) -> Heard:
        return told(httpx.post(url, json=value))

    def put(self, url: str, body: bytes) -> Heard:
        return told(httpx.put(url, content=body))

    def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        return told(httpx.put(url, content=parts))

    def download(self, url: str, part: Callable[[bytes], None]) -> None:
        with httpx.stream("GET", url) as answer:
            for each in answer.iter_bytes():
                part(each)

    def session(self, urls: Sequence[str]) -> list[Heard]:
        with httpx.Client() as client:
            return [told(client.get(url)) for url in urls]

    def events(self, url: str, event: Callable[[str], None]) -> None:
        with httpx.stream("GET", url) as answer:
            for line in answer.iter_lines():
                if line:
                    event(line.removeprefix("data: "))

    def give_up(self, url: str, seconds: float) -> None:
        try:
            httpx.get(url, timeout=seconds)
        except httpx.TimeoutException as error:
            raise GaveUp from error

    def leave(self, url: str) -> None:
        with httpx.stream("GET", url) as answer:
            assert next(answer.iter_bytes())


class AsyncHttpx:
    async def get(
        self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False
    ) -> Heard:
        async with httpx.AsyncClient(follow_redirects=follow) as client:
            return told(await client.get(url, headers=fields))

    async def head(self, url: str) -> Heard:
        async with httpx.AsyncClient() as client:
            return told(await client.head(url))

    async def post_json(self, url: str, value: Any) -> Heard:
        async with httpx.AsyncClient() as client:
            return told(await client.post(url, json=value))

    async def put(self, url: str, body: bytes) -> Heard:
        async with httpx.AsyncClient() as client:
            return told(await client.put(url, content=body))

    async def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        async with httpx.AsyncClient() as client:
            return told(await client.put(url, content=one_by_one(parts)))

    async def download(self, url: str, part: Callable[[bytes], None]) -> None:
        async with httpx.AsyncClient() as client, client.stream("GET", url) as answer:
            async for each in answer.aiter_bytes():
                part(each)

    async def session(self, urls: Sequence[str]) -> list[Heard]:
        async with httpx.AsyncClient() as client:
            return [told(await client.get(url)) for url in urls]

    async def events(self, url: str, event: Callable[[str], None]) -> None:
        async with httpx.AsyncClient() as client, client.stream("GET", url) as answer:
            async for line in answer.aiter_lines():
                if line:
                    event(line.removeprefix("data: "))

    async def give_up(self, url: str, seconds: float) -> None:
        async with httpx.AsyncClient(timeout=seconds) as client:
            try:
                await client.get(url)
            except httpx.TimeoutException as error:
                raise GaveUp from error

    async def leave(self, url: str) -> None:
        async with httpx.AsyncClient() as client, client.stream("GET", url) as answer:
            assert await anext(answer.aiter_bytes())


class TestHttpx(Battery):
    client = Httpx()
    no_tunnel = httpx.ProxyError


class TestAsyncHttpx(Battery):
    client = AsyncHttpx()
    no_tunnel = httpx.ProxyError
