"""The limits of the proxy. They aren't settings: they bound the process, and no workload needs
others."""

from dataclasses import dataclass, replace

from sidecar.http.client.dialler import ClientLimits
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.settings.model import HalfClose


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """The limits of the proxy, in bytes, in seconds or as counts."""

    inspected_bytes: int = 4 * 1024 * 1024
    """The largest request body that is read for a decision. A request with a larger body is denied,
    never passed on unread."""
    inspected_seconds: float = 30.0
    """The seconds within which a body that is read for a decision has to arrive."""
    upload_idle_seconds: float = 60.0
    """The seconds that an agent may pause in the middle of a body that is forwarded as it
    arrives."""
    stream_idle_seconds: float = 600.0
    """The seconds without progress after which a transfer is broken off: the data source sends no
    more of a response or accepts no more of a body, or the agent accepts no more of a response."""
    inspected_response_bytes: int = 4 * 1024 * 1024
    """The largest response that is read whole because it has to be checked or filtered. For an
    event stream, the largest single event."""

    lookup_seconds: float = 30.0
    """The seconds that all requests which the sidecar itself sends to the data source to resolve
    one request's names may take together."""

    line_bytes: int = 16 * 1024
    """The longest request line, in bytes."""
    field_bytes: int = 16 * 1024
    """The longest header field of a request, in bytes."""
    fields: int = 128
    """The most header fields of a request or a response."""
    response_field_bytes: int = 64 * 1024
    """The longest status line or header field of a response, in bytes; a longer one fails the
    response."""
    buffer_bytes: int = 64 * 1024
    """The bytes that are read ahead of a slow reader, in each direction, before reading stops. A
    read that is under way may bring 256 KiB more (with uvloop), so up to 512 KiB of a response are
    held."""

    idle_seconds: float = 75.0
    """The seconds that a client's connection may wait for a complete request head."""
    handshake_seconds: float = 10.0
    """The seconds that a TLS handshake with the sidecar may take."""
    opening_seconds: float = 10.0
    """The seconds that the first bytes of a tunnel may take to show which protocol it carries."""
    tunnel_idle_seconds: float = 600.0
    """The seconds without a byte in either direction after which a connection that is passed
    through unread, such as a WebSocket, is cut."""
    reauthorize_seconds: float = 1.0
    """The seconds between two decisions on what lasts: a response that goes on, or a connection
    that is passed through unread."""
    lingering_seconds: float = 2.0
    """The seconds for which the rest of a refused body is read and dropped, so that the agent can
    read the refusal."""
    half_close_seconds: float = 10.0
    """The seconds that a client that closed its sending side may wait for the head of the response,
    on a listener with `half_close: wait`; after that it counts as gone."""

    connect_seconds: float = 5.0
    """The seconds that a connection to the data source may take to open."""
    upstream_idle_seconds: float = 15.0
    """The seconds for which an idle connection to the data source is kept for reuse."""
    connections: int = 512
    """The most connections to one data source at once. Further requests wait for a free
    connection."""

    def of_listener(self, half_close: HalfClose) -> "ProxyLimits":
        """Return these limits for a listener with the setting `half_close`: unless it is `wait`, a
        client that closes its sending side counts as gone at once."""
        return self if half_close == "wait" else replace(self, half_close_seconds=0.0)

    @property
    def upstream(self) -> ClientLimits:
        """The limits of the connections to one data source."""
        field = self.response_field_bytes
        return ClientLimits(
            HeadLimits(field, field, self.fields),
            self.buffer_bytes,
            self.connections,
            self.connect_seconds,
            self.upstream_idle_seconds,
        )


LIMITS = ProxyLimits()
