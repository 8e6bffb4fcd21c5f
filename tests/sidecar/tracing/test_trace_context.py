"""`traceparent` is read as W3C Trace Context says, and written so that its own reader agrees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.tracing import TraceContext, parse_traceparent, with_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01".encode()


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (VALID, True),
        (f"00-{TRACE}-{SPAN}-00".encode(), False),
        # Other flags are not ours.
        (f"00-{TRACE}-{SPAN}-03".encode(), True),
        (f"00-{TRACE}-{SPAN}-02".encode(), False),
        # A later version, with and without more fields.
        (f"cc-{TRACE}-{SPAN}-01".encode(), True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later".encode(), True),
    ],
)
def test_a_valid_context_is_read(value: bytes, sampled: bool) -> None:
    assert parse_traceparent([value]) == TraceContext(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [VALID, VALID],
        [b""],
        [VALID.upper()],
        [VALID + b"-more"],
        [VALID[:-1]],
        [VALID + b" "],
        [f"ff-{TRACE}-{SPAN}-01".encode()],
        [f"cc-{TRACE}-{SPAN}-01.later".encode()],
        [f"00-{'0' * 32}-{SPAN}-01".encode()],
        [f"00-{TRACE}-{'0' * 16}-01".encode()],
        [f"00-{TRACE}-{SPAN}-0g".encode()],
        [b"00" * 5000],
    ],
)
def test_any_other_value_starts_a_new_trace(values: list[bytes]) -> None:
    assert parse_traceparent(values) is None


def one_byte_changed(at: int, byte: int) -> bytes:
    return VALID[:at] + bytes([byte]) + VALID[at + 1 :]


CHANGED = st.builds(
    one_byte_changed, st.integers(0, len(VALID) - 1), st.sampled_from(b"0123456789abcdefgA- ")
)


@given(st.binary(max_size=80) | CHANGED)
def test_any_value_is_refused_or_read_as_what_it_says(value: bytes) -> None:
    found = parse_traceparent([value])
    if found is not None:
        assert found.header()[3:53] == value[3:53]
        assert parse_traceparent([found.header()]) == found


def test_the_context_replaces_every_spelling_of_the_header() -> None:
    context = TraceContext(TRACE, SPAN, True)
    lines = b"Accept: */*\r\nTraceParent: x\r\ntracestate: a=b\r\ntraceparent: y\r\n"
    expected = b"Accept: */*\r\ntracestate: a=b\r\ntraceparent: " + VALID + b"\r\n"
    assert with_traceparent(lines, context) == expected
    assert with_traceparent(b"", context) == b"traceparent: " + VALID + b"\r\n"
    assert parse_traceparent([context.header()]) == context
