"""Reads the heads of requests for the fast path, with bounded caches, since agents send the same
heads over and over. A result of None means that the request must take the slow path.

Knows which requests qualify by their head alone. Decides nothing.
"""

from typing import Any, NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.head_digest import HeadDigest
from sidecar.http.request_target import Target
from sidecar.protocols.route_table import ProtocolRoute, RouteClass, RouteMatch
from sidecar.proxy.messages import simple_request
from sidecar.proxy.pipeline.fast_path_exchange import SimpleRequest
from sidecar.proxy.pipeline.pipeline import ProxyPipeline
from sidecar.proxy.upstream.client import UpstreamRequest, framing

LONGEST_BODY = 64 * 1024
"""A request with a longer body takes the slow path."""

_CACHE_ENTRIES = 256
_READS = (RouteClass.RETRIEVE, RouteClass.METADATA, RouteClass.OPEN)


class _RequestLine(NamedTuple):
    method: str
    target: Target
    route: ProtocolRoute
    values: tuple[str, ...]


class _CachedHead(NamedTuple):
    """The result of parsing one head. Its fields start at the byte `fields_begin`; `front` is the
    start of the head that the data source gets."""

    line: _RequestLine
    head: simple_request.SimpleHead
    fields_begin: int
    front: bytes


class HeadReader:
    """Reads the heads of requests to one source."""

    def __init__(self, pipeline: ProxyPipeline, digest: HeadDigest) -> None:
        self._pipeline = pipeline
        self._digest = digest
        # INVARIANT: the caches hold no query, and no value of a forwarded field but the media type:
        # both may carry credentials, which must not outlive their request.
        self._heads: dict[bytes, _CachedHead] = {}
        self._blocks: dict[bytes, simple_request.SimpleHead] = {}
        self._lines: dict[bytes, _RequestLine] = {}

    def read(self, data: bytes, head_end: int) -> SimpleRequest | None:
        """The request whose head is the first `head_end` bytes of `data`."""
        if head_end < 4 or head_end > simple_request.LONGEST:
            return None
        # The whole head is looked up first, then its line and its fields separately: a client that
        # repeats itself costs one digest; if it changes only the path, its fields are still cached.
        digest = self._digest(data[:head_end])
        cached = self._heads.get(digest)
        if cached is None:
            return self._read_uncached(data, head_end, digest)
        line, head, fields_begin, front = cached
        return self._simple_request(line, head, head.lines(data[fields_begin:head_end]), front)

    def _read_uncached(self, data: bytes, head_end: int, digest: bytes) -> SimpleRequest | None:
        line_end = data.find(b"\r\n")
        raw, fields_begin = data[:line_end], line_end + 2
        line = self._lines.get(raw) or self._read_line(raw)
        if line is None:
            return None
        block = data[fields_begin:head_end]
        block_digest = self._digest(block)
        head = self._blocks.get(block_digest)
        if head is not None:
            lines = head.lines(block)
        else:
            read = simple_request.parse_request_fields(block, self._pipeline.default)
            if read is None:
                return None
            head, lines = read[0], read[1].lines
            # Without runs, the values would have to be cached too, credentials included.
            if head.runs is not None:
                _remember(self._blocks, block_digest, head)
        if head.length > LONGEST_BODY:
            return None
        front = self._pipeline.upstream.front(line.method, line.target.forwarded)
        if head.runs is not None and line.target.query is None:
            _remember(self._heads, digest, _CachedHead(line, head, fields_begin, front))
        return self._simple_request(line, head, lines, front)

    def _simple_request(
        self, line: _RequestLine, head: simple_request.SimpleHead, lines: bytes, front: bytes
    ) -> SimpleRequest:
        method, target, route, values = line
        upstream_request = UpstreamRequest(method, target.forwarded, lines, head.stated)
        sent = b"%b%b%b\r\n" % (front, lines, framing(head.stated, chunked=False))
        return SimpleRequest(
            route, target, values, head.who, upstream_request, sent, head.length, head.media
        )

    def _read_line(self, raw: bytes) -> _RequestLine | None:
        if len(raw) > simple_request.LONGEST:
            return None
        read = simple_request.parse_request_line(raw)
        if read is None:
            return None
        try:
            target, match = self._pipeline.match(*read)
        except Malformed:
            return None
        protocol = self._pipeline.protocol
        # A request that depends on `Host` or has to be signed isn't determined by its request line.
        if match is None or protocol.uses_host or protocol.signs_requests or not _qualifies(match):
            return None
        line = _RequestLine(read[0], target, *match)
        if target.query is None:
            _remember(self._lines, raw, line)
        return line


def _remember(cache: dict[bytes, Any], key: bytes, value: object) -> None:
    # Clearing the whole cache saves the bookkeeping that evicting one entry would need.
    if len(cache) >= _CACHE_ENTRIES:
        cache.clear()
    cache[key] = value


def _qualifies(match: RouteMatch) -> bool:
    """Whether a request for this route can be decided without waiting for anything."""
    route = match.route
    waits = (
        route.compose_response,
        route.refine,
        route.response_source,
        route.before_forward,
        route.after_forward,
    )
    if route.route_class not in _READS or any(each is not None for each in waits):
        return False
    return route.find_sources_now is not None or (
        route.find_sources is None and route.route_class is RouteClass.OPEN
    )
