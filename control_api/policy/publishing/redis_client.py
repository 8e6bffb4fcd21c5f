"""Sends commands, scripts and pipelines to Redis, and recognises streams that someone else made
unusable.

Every failure, also a malformed answer, is raised as a `RedisFault`: it may pass, and is never a bug
of this service. The Redis library is imported with the first client, so that a service without
Redis need not have it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from policies.ground.addresses import ListenAddress, RedisUrl

ANSWER = 3.0
CONNECT = 2.0
CONNECTIONS = 48
"""The size of the connection pool. It is larger than the number ever in use, so that no command
waits for a connection."""
IDLE = 15
"""Seconds after which an idle connection is checked with a PING before use."""

Part = str | bytes | int
Command = Sequence[Part]


class RedisFault(Exception):
    """Redis does not answer, or its answer is not valid"""


class Script:
    """A Lua script. `call` makes the command that runs it by its digest, since Redis usually has
    the script cached."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Redis names a script by its SHA-1. Nothing relies on its strength.
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], parts: Sequence[Part]) -> Command:
        return ("EVALSHA", self.digest, len(keys), *keys, *parts)


class RedisClient:
    """A client of one Redis server or cluster. It connects when first used, and reconnects when a
    connection is lost."""

    def __init__(self, url: RedisUrl) -> None:
        self.address = ",".join(str(ListenAddress(host, port)) for host, port in url.nodes)
        self._cluster = url.cluster
        self._client = _client(url)

    async def call(self, *command: Part) -> Any:
        try:
            return await self._client.execute_command(*command)
        except Exception as error:  # a malformed answer can raise anything
            await self._leave_replica([error])
            raise _fault(error) from error

    async def script(self, script: Script, keys: Sequence[str], parts: Sequence[Part]) -> Any:
        """Run a script and return its result. All its keys must be in one slot of a cluster."""
        try:
            return await self.call(*script.call(keys, parts))
        except RedisFault as fault:
            if not _script_missing(fault.__cause__):
                raise
        return await self.call("EVAL", script.text, len(keys), *keys, *parts)

    async def scripts(
        self, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Part]]]
    ) -> list[Any]:
        """Run a script many times in one pipeline, and return the results in order. If a call
        fails, its result is the error."""
        answers = await self.many([script.call(*each) for each in calls])
        for index, answer in enumerate(answers):
            # Each node of a cluster has its own script cache, so only some may lack the script.
            if _script_missing(answer):
                answers[index] = await self.script(script, *calls[index])
        return answers

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one pipeline, and return the results in order. If a command fails, its
        result is the error."""
        try:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            answers = list(await pipeline.execute(raise_on_error=False))
        except Exception as error:  # a malformed answer can raise anything
            raise _fault(error) from error
        if len(answers) != len(commands):
            raise RedisFault("it did not answer every command")
        await self._leave_replica(answers)
        return answers

    async def _leave_replica(self, answers: Sequence[object]) -> None:
        """Close the connections if the server refuses writes because a failover has demoted it. New
        connections resolve the host name again. The cluster client handles this by itself."""
        if not self._cluster and any(map(_read_only, answers)):
            await self._client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        await self._client.aclose()


def _script_missing(error: object) -> bool:
    """Return whether the error says that Redis does not have the script in its cache."""
    # Errors are told apart by name: their classes are in a library that may not be installed.
    return isinstance(error, Exception) and type(error).__name__ == "NoScriptError"


def _read_only(answer: object) -> bool:
    """Return whether the answer is an error that says that the server is a read-only replica."""
    # The library has a class for this error, but if a script met it, only the text shows it.
    if not isinstance(answer, Exception):
        return False
    return type(answer).__name__ == "ReadOnlyError" or "READONLY" in str(answer)


def is_error(error: BaseException | None, prefix: str) -> bool:
    """Return whether the error is an answer of Redis that starts with `prefix`, such as an error
    code, which is its first word."""
    return type(error).__name__ == "ResponseError" and str(error).startswith(prefix)


def _fault(error: Exception) -> RedisFault:
    # An error may quote names of keys and documents, but never a secret. The text is cut short,
    # because it may come from a server that is not ours.
    return RedisFault(f"{type(error).__name__}: {str(error)[:200]}")


def _client(url: RedisUrl) -> Any:
    from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, SSLConnection
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as Lost

    options: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "client_name": "sluice-control",
        # Sends no CLIENT SETINFO: the ACL user in README.md has no right to it.
        "driver_info": None,
        "protocol": 2,
        "socket_timeout": ANSWER,
        "socket_connect_timeout": CONNECT,
        "socket_keepalive": True,
        "health_check_interval": IDLE,
        # One immediate retry, for a connection that died unnoticed. Later retries are the caller's,
        # who may have other work to do after a pause.
        "retry": Retry(NoBackoff(), 1, supported_errors=(Lost,)),
        **dict(url.options),
    }
    if url.cluster:
        nodes = [ClusterNode(host, port) for host, port in url.nodes]
        options["max_connections"] = CONNECTIONS
        return RedisCluster(startup_nodes=nodes, ssl=url.tls, **options)
    options |= {"host": url.nodes[0][0], "port": url.nodes[0][1], "db": url.db}
    if url.tls:
        options["connection_class"] = SSLConnection
    return Redis.from_pool(
        BlockingConnectionPool(max_connections=CONNECTIONS, timeout=ANSWER, **options)
    )


AHEAD_MS = 2 * 86_400_000
"""The milliseconds by which the id of a stream entry may be ahead of the clock. An entry further
ahead was written by someone to use up the stream's ids."""

Id = tuple[int, int]


def entry_id(raw: object) -> Id:
    """Parse an entry's id: its time in milliseconds, and its number within that millisecond. Raise
    `RedisFault` if it is malformed."""
    if isinstance(raw, bytes):
        high, dash, low = raw.partition(b"-")
        # Two 64-bit numbers and a dash fit in 48 bytes. A longer id would be slow to convert.
        if dash and high.isdigit() and low.isdigit() and len(raw) < 48:
            return int(high), int(low)
    raise RedisFault("it answered with a stream entry that has no valid id")


def far_ahead(entry: Id, now: int) -> bool:
    """Return whether an entry's id is implausibly far in the future. `now` is in microseconds."""
    return entry[0] > now // 1000 + AHEAD_MS


def unusable(error: object) -> bool:
    """Return whether a command failed because its key is not a stream, or because the stream's ids
    are used up. The caller then deletes the key, and the stream starts anew."""
    if not isinstance(error, BaseException):
        return False
    return is_error(error, "WRONGTYPE") or is_error(error, "The stream has exhausted")
