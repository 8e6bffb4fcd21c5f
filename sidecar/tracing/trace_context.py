"""Reads and writes the header `traceparent` (W3C Trace Context, section 3.2). Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

HEADER = b"traceparent"

# A version above 00 may have more fields at its end, which this version ignores (section 4.3).
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?").fullmatch
_VERSION_00_LENGTH = 55
_SAMPLED = 0x01


class TraceContext(NamedTuple):
    """The position of a request in a trace. Ids in lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool

    def header(self) -> bytes:
        """The value of `traceparent` for a request that this span makes."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}".encode()


def parse_traceparent(values: Sequence[bytes]) -> TraceContext | None:
    """The context in a request's `traceparent` headers. None without exactly one that is valid:
    then the request starts a trace of its own, as the specification asks."""
    found = _FORM(values[0]) if len(values) == 1 else None
    if found is None:
        return None
    version, trace_id, span_id, flags = found[1], found[2], found[3], found[4]
    if version == b"ff" or (version == b"00" and len(values[0]) != _VERSION_00_LENGTH):
        return None
    # Ids of zeros only mean "none".
    if not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    return TraceContext(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def with_traceparent(lines: bytes, context: TraceContext) -> bytes:
    """The header lines of a request, each ended by CRLF, with `context` in place of theirs."""
    kept = [line for line in lines.split(b"\r\n") if line and not _is_traceparent(line)]
    return b"\r\n".join([*kept, HEADER + b": " + context.header(), b""])


def _is_traceparent(line: bytes) -> bool:
    return line.partition(b":")[0].lower() == HEADER
