"""Makes the client for the Redis that a sidecar reads from. Imports redis-py only if a Redis is
configured. Knows no commands."""

from typing import Any

from policies.ground.redis_url import RedisUrl

CONNECT_SECONDS = 2.0
CONNECTIONS = 16


def connect(url: RedisUrl) -> Any:
    """A client that connects on first use; close it with `aclose`."""
    from redis.asyncio import Redis
    from redis.asyncio.cluster import ClusterNode, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    options: dict[str, Any] = {
        "username": url.username,
        "password": url.password,
        "client_name": "sluice-sidecar",
        "driver_info": None,  # sending it takes a command that our Redis user may not use
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_keepalive": True,
        "socket_timeout": None,  # each caller sets its own time limit
        "protocol": 2,  # with 3, answers have other types: XREAD returns a dict
        "max_connections": CONNECTIONS,
        **dict(url.options),
    }
    if url.tls:
        options["ssl"] = True
    if url.cluster:
        nodes = [ClusterNode(host, port) for host, port in url.nodes]
        return RedisCluster(startup_nodes=nodes, **options)
    ((host, port),) = url.nodes
    # No hidden retries: each caller retries by itself.
    retry = Retry(NoBackoff(), 0)
    return Redis(host=host, port=port, db=url.db, retry=retry, **options)
