"""One connection to a Redis server, which carries one command at a time. Knows neither keys nor
clusters."""

import asyncio
import socket
import ssl
from typing import Any, cast

from policies.ground.redis_url import RedisUrl
from sidecar.policy_cache.partial_replica.resp import (
    Part,
    RedisError,
    ReplyError,
    ReplyParser,
    encode,
)

CONNECT_SECONDS = 2.0
Address = tuple[str, int]


class RedisConnection(asyncio.Protocol):
    """`usable` is false once the connection is closed, or has got what was not asked for. A call
    that fails or is cancelled ends it: a late answer must not pass for the next one."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.usable = True
        self._parser = ReplyParser()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Any] | None = None

    @classmethod
    async def open(cls, url: RedisUrl, address: Address) -> "RedisConnection":
        """Connect as the URL says. Raises `OSError` and `RedisError`."""
        host, port = address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                context = _context(url) if url.tls else None
                _, connection = await loop.create_connection(
                    lambda: cls(address), host, port, ssl=context
                )
                try:
                    await connection.introduce(url)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise OSError(f"`{host}:{port}` does not answer within {CONNECT_SECONDS:g} s") from None
        return connection

    async def introduce(self, url: RedisUrl) -> None:
        """Say who we are, and choose the database."""
        if url.password is not None:
            user = () if url.username is None else (url.username,)
            await self.call("AUTH", *user, url.password)
        await self.call("CLIENT", "SETNAME", "sluice-sidecar")
        if url.db:
            await self.call("SELECT", url.db)

    async def call(self, *command: Part) -> Any:
        """The answer to the command. Raises `ReplyError` if that is an error; the connection stays
        usable then."""
        if self._transport is None or not self.usable or self._answer is not None:
            raise ConnectionError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(encode(command))
            answer = await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = None
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's has the methods of `asyncio.Transport`, but is not a subclass.
        self._transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.done():
            self.close()  # nothing was asked
            return
        try:
            whole = self._parser.feed(data)
        except RedisError as error:
            answer.set_exception(error)
        else:
            if whole is not None:
                answer.set_result(whole[0])

    def eof_received(self) -> None:
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        if self._answer is not None and not self._answer.done():
            lost = ConnectionResetError("Redis closed the connection")
            self._answer.set_exception(error if isinstance(error, OSError) else lost)


def _context(url: RedisUrl) -> ssl.SSLContext:
    # For each connection: the files may have been renewed.
    options = dict(url.options)
    context = ssl.create_default_context()
    if "ssl_ca_certs" in options:
        context.load_verify_locations(options["ssl_ca_certs"])
    if "ssl_certfile" in options:
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    return context
