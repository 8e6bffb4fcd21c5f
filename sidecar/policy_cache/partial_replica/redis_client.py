"""The Redis that a sidecar reads from: the few commands that it needs, on one server or a cluster.

A small client of our own. redis-py takes nine megabytes, a seventh of a sidecar, and more than half
of the CPU time that a change costs.

In a cluster, a server that does not hold a key names the one that does (`MOVED`, `ASK`), so nothing
has to be known of slots: only which server last held each hash tag.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from policies.ground.redis_url import RedisUrl
from sidecar.policy_cache.partial_replica.redis_connection import Address, RedisConnection
from sidecar.policy_cache.partial_replica.resp import Part, RedisError, ReplyError

CONNECTIONS = 16
"""At a time; further commands wait."""
MAX_REDIRECTIONS = 5
Entry = tuple[bytes, dict[bytes, bytes]]
"""An entry of a stream: its id and its fields."""


class RedisClient:
    """Connects when first used, and again after `aclose`. Retries nothing: callers do. Raises
    `OSError` and `RedisError`; a malformed answer may raise anything."""

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._idle: list[RedisConnection] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._nodes = list(url.nodes)
        self._holders: dict[str, Address] = {}

    async def hget(self, key: str, field: str) -> bytes | None:
        value: bytes | None = await self._call(key, "HGET", key, field)
        return value

    async def hmget(self, key: str, fields: Sequence[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = await self._call(key, "HMGET", key, *fields)
        return values

    async def xadd(self, key: str, fields: Mapping[str, Part], trim: str, length: int) -> None:
        """Add an entry. `trim` is `~` or `=`: whether the stream is then about or exactly of
        `length`."""
        parts = [part for pair in fields.items() for part in pair]
        await self._call(key, "XADD", key, "MAXLEN", trim, length, "*", *parts)

    async def xrange(self, key: str, start: bytes, count: int) -> list[Entry]:
        return _entries(await self._call(key, "XRANGE", key, start, "+", "COUNT", count))

    async def last_id(self, key: str) -> bytes | None:
        """The id of a stream's newest entry; None if there is none."""
        found = _entries(await self._call(key, "XREVRANGE", key, "+", "-", "COUNT", 1))
        return found[0][0] if found else None

    async def xread(
        self, streams: Mapping[str, bytes], count: int, block: int
    ) -> list[tuple[bytes, list[Entry]]]:
        """The entries of each stream after an id, waiting `block` milliseconds for the first."""
        first = next(iter(streams))
        limits: tuple[Part, ...] = ("COUNT", count, "BLOCK", block)
        found = await self._call(first, "XREAD", *limits, "STREAMS", *streams, *streams.values())
        return [(name, _entries(entries)) for name, entries in found or ()]

    async def aclose(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    async def _call(self, key: str, *command: Part) -> Any:
        """The answer to a command that concerns `key`."""
        async with self._slots:
            if not self._url.cluster:
                return await self._call_at(self._nodes[0], command)
            tag = _hash_tag(key)
            try:
                return await self._call_holder(tag, command)
            except BaseException as error:
                if not isinstance(error, ReplyError):
                    # Whether it fails or hangs: ask another one next time.
                    self._holders.pop(tag, None)
                    self._nodes.append(self._nodes.pop(0))
                raise

    async def _call_holder(self, tag: str, command: Sequence[Part]) -> Any:
        address, asking = self._holders.get(tag, self._nodes[0]), False
        for _ in range(MAX_REDIRECTIONS):
            try:
                return await self._call_at(address, command, asking=asking)
            except ReplyError as error:
                kind, _, rest = str(error).partition(" ")
                if kind not in ("MOVED", "ASK"):
                    raise
                host, _, port = rest.rpartition(" ")[2].rpartition(":")
                # Without a name, it is another port of the same host.
                address, asking = (host or address[0], int(port)), kind == "ASK"
                if not asking:
                    self._holders[tag] = address
        raise RedisError("the cluster's servers name each other as the holder of a key")

    async def _call_at(
        self, address: Address, command: Sequence[Part], *, asking: bool = False
    ) -> Any:
        connection = self._take(address) or await RedisConnection.open(self._url, address)
        try:
            if asking:
                await connection.call("ASKING")
            return await connection.call(*command)
        finally:
            if connection.usable:
                self._idle.append(connection)

    def _take(self, address: Address) -> RedisConnection | None:
        """An idle connection to the server."""
        self._idle = [each for each in self._idle if each.usable]
        for each in self._idle:
            if each.address == address:
                self._idle.remove(each)
                return each
        return None


def _hash_tag(key: str) -> str:
    """The part of the key that decides which server holds it (cluster specification, "Hash
    tags")."""
    tag = key.partition("{")[2].partition("}")
    return tag[0] if tag[0] and tag[1] else key


def _entries(found: Any) -> list[Entry]:
    return [
        (entry, dict(zip(fields[::2], fields[1::2], strict=True))) for entry, fields in found or ()
    ]
