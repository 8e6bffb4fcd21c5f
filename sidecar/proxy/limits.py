"""What a listener and its connections may use, one sentence a field. Knows no setting of the
operator's: these bound the process, and no workload asks for others."""

from dataclasses import dataclass

from sidecar.http.body_budget import BODY_BUDGET_BYTES


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Bytes, seconds and counts."""

    inspected_bytes: int = 4 * 1024 * 1024
    """The largest request body that is read and judged; larger is denied, never passed unread."""
    inspected_seconds: float = 30.0
    """How long such a body may take to arrive, from its first byte to its last."""
    held_bytes: int = BODY_BUDGET_BYTES
    """The most bytes of such bodies that are held at once, over all connections and together with
    those on the sidecar's own ports; a request beyond gets 503 and `Retry-After`."""
    upload_idle_seconds: float = 60.0
    """How long an agent may send nothing in the middle of a body that is passed on as it comes."""
    stream_idle_seconds: float = 600.0
    """How long a data source may send nothing in the middle of an answer or take nothing of a body,
    and an agent take nothing of an answer."""
    read_answer_bytes: int = 4 * 1024 * 1024
    """The largest answer that is read whole, where the answer itself must be judged."""
    listed_bytes: int = 16 * 1024 * 1024
    """The largest list that is put together of what may be seen."""

    lookup_seconds: float = 30.0
    """How long all look-ups of one request may take together."""

    line_bytes: int = 16 * 1024
    """The longest request line."""
    field_bytes: int = 16 * 1024
    """The longest header field of a request."""
    fields: int = 128
    """The most header fields of a request, or of an answer."""
    answer_field_bytes: int = 64 * 1024
    """The longest status line or header field of an answer; longer is a failed answer."""
    buffer_bytes: int = 64 * 1024
    """What is read ahead of a slow reader, in each direction, before reading stops. A read under
    way may bring 256 KiB more (uvloop's), so that up to 512 KiB are held of an answer."""

    idle_seconds: float = 75.0
    """How long a client's connection may wait for a whole request head."""
    handshake_seconds: float = 10.0
    """How long TLS may take to be spoken by both sides of a connection that ends here."""
    opening_seconds: float = 10.0
    """How long the first bytes of a tunnel may take to tell what is spoken in it."""
    tunnel_idle_seconds: float = 600.0
    """How long nothing may pass through a connection that nobody reads."""
    rejudge_seconds: float = 1.0
    """How often a connection that nobody reads is judged again."""
    lingering_seconds: float = 2.0
    """How long the rest of a refused body is read away, so that the refusal can be read."""
    half_close_seconds: float = 10.0
    """How long a client that closed its sending side is taken to wait for the answer's head."""

    connect_seconds: float = 5.0
    """How long a connection to the data source may take to open."""
    upstream_idle_seconds: float = 15.0
    """How long an unused connection to the data source is kept."""
    connections: int = 512
    """The most connections to the data source at once; more requests wait for one."""


LIMITS = ProxyLimits()
