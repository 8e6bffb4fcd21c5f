"""What the connections of one port have in common: who answers, within which limits. Knows no
message."""

from collections.abc import Callable
from typing import NamedTuple

from policies.ground.connection_budget import ConnectionBudget
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.server.request import HttpRequest, Serve
from sidecar.http.server.response import Response


class ServerLimits(NamedTuple):
    """Bytes and seconds."""

    head: HeadLimits
    buffer_bytes: int
    """How much is read ahead of a slow reader before reading stops."""
    idle_seconds: float
    """How long a connection may wait for a complete request head."""
    lingering_seconds: float
    """How long the rest of a refused body is read and dropped, so that the client can read the
    refusal."""
    half_close_seconds: float
    """How long a client that closed its sending side is assumed to wait for the head of the
    response; then it counts as gone. With 0 it is gone at once."""
    write_seconds: float
    """How long a client may take nothing of a response."""
    watch_seconds: float = 0.05
    """How often it is checked whether a client that is watched has left."""


class Flow:
    """Bytes on the connections of one port, framing included."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class Service(NamedTuple):
    """`serve` answers each request; if it raises, `failed` makes the response. With `cancels`, a
    client that leaves cancels its request. `budget` limits the connections of all ports
    together."""

    serve: Serve
    failed: Callable[[HttpRequest], Response]
    limits: ServerLimits
    flow: Flow
    cancels: bool
    heads: HeadCache
    budget: ConnectionBudget
