"""The connection to Redis: single commands, scripts, and commands in one go. Knows no key.

Whatever an answer is, what comes out of here is the answer or `RedisFault`: a Redis that fails, or
talks rubbish, is a fault that may pass, never one of ours. Nothing here waits longer than `ANSWER`
seconds for it, but for the time that a command itself was told to block.

The client library is imported when a link is opened, so an installation without Redis needs none.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from policies.ground.listen_address import ListenAddress
from policies.ground.redis_url import RedisUrl

ANSWER = 3.0
CONNECT = 2.0
CONNECTIONS = 48
"""More than are ever busy at once: nobody waits for one."""
IDLE = 15
"""Seconds of silence after which a connection is tried with a PING before it is used."""

Part = str | bytes | int
Command = Sequence[Part]


class RedisFault(Exception):
    """Redis does not answer, or not as it should"""


class Script:
    """A script of Redis, which may have it already, and then is told only its digest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], parts: Sequence[Part]) -> Command:
        return ("EVALSHA", self.digest, len(keys), *keys, *parts)


class RedisClient:
    """Opens connections when they are first needed, and again when they were lost."""

    def __init__(self, url: RedisUrl) -> None:
        self.place = ",".join(str(ListenAddress(host, port)) for host, port in url.nodes)
        self._cluster = url.cluster
        self._client = _client(url)

    async def call(self, *command: Part) -> Any:
        try:
            return await self._client.execute_command(*command)
        except Exception as error:  # rubbish raises anything
            await self._demoted([error])
            raise _fault(error) from error

    async def script(self, script: Script, keys: Sequence[str], parts: Sequence[Part]) -> Any:
        """What the script returns, all of whose keys lie in one slot."""
        try:
            return await self.call(*script.call(keys, parts))
        except RedisFault as fault:
            if not unknown(fault.__cause__):
                raise
        return await self.call("EVAL", script.text, len(keys), *keys, *parts)

    async def scripts(
        self, script: Script, calls: Sequence[tuple[Sequence[str], Sequence[Part]]]
    ) -> list[Any]:
        """The same for many, which share nothing but the way; an error stands in its answer's
        place."""
        answers = await self.many([script.call(*each) for each in calls])
        for place, answer in enumerate(answers):
            # Every node of a cluster learns the script by itself.
            if unknown(answer):
                answers[place] = await self.script(script, *calls[place])
        return answers

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """The answers, an error in the place of one that was refused."""
        try:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            answers = list(await pipeline.execute(raise_on_error=False))
        except Exception as error:  # rubbish raises anything
            raise _fault(error) from error
        if len(answers) != len(commands):
            raise RedisFault("it did not answer every command")
        await self._demoted(answers)
        return answers

    async def _demoted(self, answers: Sequence[object]) -> None:
        """A server that takes no writes was replaced by another: leave it, so that the next command
        goes to where the name leads now. On a cluster the client knows by itself."""
        if not self._cluster and any(map(_read_only, answers)):
            await self._client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        await self._client.aclose()


def unknown(error: object) -> bool:
    """Whether Redis has not heard of the script."""
    return isinstance(error, Exception) and type(error).__name__ == "NoScriptError"


def _read_only(answer: object) -> bool:
    """The code is the error's class, or stands in the text of a script's."""
    if not isinstance(answer, Exception):
        return False
    return type(answer).__name__ == "ReadOnlyError" or "READONLY" in str(answer)


def refused(error: BaseException | None, why: str) -> bool:
    """Whether Redis answered with this error: the first word is its code."""
    return type(error).__name__ == "ResponseError" and str(error).startswith(why)


def _fault(error: Exception) -> RedisFault:
    # What an error quotes of a command is names of keys and documents, never a secret; and what
    # a foreign server says is cut short.
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
        "driver_info": None,
        "protocol": 2,
        "socket_timeout": ANSWER,
        "socket_connect_timeout": CONNECT,
        "socket_keepalive": True,
        "health_check_interval": IDLE,
        # Once more where a connection had died unnoticed. Longer waits are for whoever calls: it
        # knows what there is to do by then.
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
