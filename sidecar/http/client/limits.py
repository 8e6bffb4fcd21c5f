"""What connections to one server may cost."""

from typing import NamedTuple

from sidecar.http.messages.request_parser import HeadLimits


class ClientLimits(NamedTuple):
    """Bytes, seconds and counts."""

    head: HeadLimits
    """Of a response."""
    buffer_bytes: int
    """How much of a body is read ahead of a slow reader."""
    connections: int
    """The most connections at once; further requests wait for a free one."""
    connect_seconds: float
    """How long it may take to get a connection: waiting for a free one, resolving, TLS and all."""
    idle_seconds: float
    """How long an unused connection is kept."""
    trailers: bool = False
    """Whether the trailers of responses are kept so that they can be forwarded. Otherwise they are
    read and dropped."""
