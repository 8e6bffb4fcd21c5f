"""A route, and what its handler is given and gives back. Knows no path and no HTTP beyond that."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from policies.definitions.model import Key
from sidecar.http.response_head import JSON


class ApiReply(NamedTuple):
    """What a handler answers. Where there is a `durable` the reply waits for it, and is an error
    where it fails. `more` is further header lines, each with its end."""

    body: bytes
    media: bytes = JSON
    durable: asyncio.Future[None] | None = None
    more: bytes = b""


class ApiRequest(NamedTuple):
    """What a handler is given beside the body. `key` is None on paths that need none; `query` is
    still encoded."""

    key: Key | None
    content_type: str | None
    query: str = ""


Handler = Callable[[ApiRequest, bytes], ApiReply | Awaitable[ApiReply]]


class ApiRoute(NamedTuple):
    """One path. `name` is its label in metrics; `scopes` are those of keys that may call it, None
    where none is asked for."""

    name: str
    methods: tuple[str, ...]
    scopes: tuple[str, ...] | None
    handle: Handler
