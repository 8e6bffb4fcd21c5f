"""aiohttp's client."""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import aiohttp

from tests.sidecar.clients.battery import Battery
from tests.sidecar.clients.client import NONE, GaveUp, Heard, heard, one_by_one


def session() -> aiohttp.ClientSession:
    """One as its documentation has it for who goes by the environment; it takes no cookies from
    addresses unless told to."""
    # Its own context is as old as the import: it knows nothing of an authority named since.
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
    cookies = aiohttp.CookieJar(unsafe=True)
    return aiohttp.ClientSession(trust_env=True, connector=connector, cookie_jar=cookies)


async def told(answer: aiohttp.ClientResponse) -> Heard:
    fields = [(name.decode(), value.decode("latin-1")) for name, value in answer.raw_headers]
    return heard(answer.status, fields, await answer.read())


class Aiohttp:
    async def get(
        self, url: str, fields: Mapping[str, str] = NONE, *, follow: bool = False
    ) -> Heard:
        async with (
            session() as made,
            made.get(url, headers=fields, allow_redirects=follow) as answer,
        ):
            return await told(answer)

    async def head(self, url: str) -> Heard:
        async with session() as made, made.head(url) as answer:
            return await told(answer)

    async def post_json(self, url: str, value: Any) -> Heard:
        async with session() as made, made.post(url, json=value) as answer:
            return await told(answer)

    async def put(self, url: str, body: bytes) -> Heard:
        async with session() as made, made.put(url, data=body) as answer:
            return await told(answer)

    async def upload(self, url: str, parts: Iterator[bytes]) -> Heard:
        async with session() as made, made.put(url, data=one_by_one(parts)) as answer:
            return await told(answer)

    async def download(self, url: str, part: Callable[[bytes], None]) -> None:
        async with session() as made, made.get(url) as answer:
            async for each in answer.content.iter_any():
                part(each)

    async def session(self, urls: Sequence[str]) -> list[Heard]:
        found = []
        async with session() as made:
            for url in urls:
                async with made.get(url) as answer:
                    found.append(await told(answer))
        return found

    async def events(self, url: str, event: Callable[[str], None]) -> None:
        async with session() as made, made.get(url) as answer:
            async for line in answer.content:
                if line.strip():
                    event(line.decode().strip().removeprefix("data: "))

    async def give_up(self, url: str, seconds: float) -> None:
        async with session() as made:
            try:
                await made.get(url, timeout=aiohttp.ClientTimeout(total=seconds))
            except TimeoutError as error:
                raise GaveUp from error

    def leave(self, url: str) -> None:
        """On a loop of asyncio's: who closes TLS 1.3 on uvloop's reads on for 30 s, as an agent
        does that has only ended its sending side, and is answered so long."""

        async def begin() -> None:
            async with session() as made, made.get(url) as answer:
                assert await answer.content.readany()
            # As its documentation has it: TLS takes a moment to be closed.
            await asyncio.sleep(0.05)

        asyncio.run(begin())


class TestAiohttp(Battery):
    client = Aiohttp()
    no_tunnel = aiohttp.ClientHttpProxyError
