"""The Redis that a sidecar reads from, as a client. Knows redis-py, which is loaded only where a
Redis is set; knows no command."""

from typing import Any

from policies.ground.redis_url import RedisUrl

CONNECT_SECONDS = 2.0
CONNECTIONS = 16


def connect(url: RedisUrl) -> Any:
    """A client that connects when it is first asked; to be closed by `aclose`."""
    from redis.asyncio import Redis
    from redis.asyncio.cluster import ClusterNode, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    options: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "client_name": "sluice-sidecar",
        "driver_info": None,  # it would be told by a command that our user may not send
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
        "socket_timeout": None,  # whoever asks says how long it may take
        "protocol": 2,
        "max_connections": CONNECTIONS,
        **dict(url.options),
    }
    if url.tls:
        options["ssl"] = True
    if url.cluster:
        nodes = [ClusterNode(host, port) for host, port in url.nodes]
        return RedisCluster(startup_nodes=nodes, **options)
    ((host, port),) = url.nodes
    # A caller's own next try is better than one that it does not know of.
    retry = Retry(NoBackoff(), 0)
    return Redis(host=host, port=port, db=url.db, retry=retry, **options)
