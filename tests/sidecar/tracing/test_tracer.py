"""The caller's decision counts; without one, the configured share of requests is sampled."""

from __future__ import annotations

import os
import random
import time

import pytest

from policies.ground.clock import Clock
from sidecar.tracing.tracer import MAX_SPANS, Tracer

SAMPLED = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = SAMPLED[:-1] + b"0"
HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
WITH_PARENT = b"GET / HTTP/1.1\r\nHost: a\r\nTraceParent: " + SAMPLED + b"\r\n\r\n"
CLOCK = Clock(lambda: time.time_ns() // 1000, time.monotonic)


def tracer(ratio: float, seed: int = 1) -> Tracer:
    return Tracer(ratio, CLOCK, random.Random(seed).randbytes)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_the_caller_s_decision_counts(ratio: float) -> None:
    traced = tracer(ratio)
    for _ in range(20):
        assert traced.begin([SAMPLED], proxied=True) is not None
        assert traced.begin([UNSAMPLED], proxied=True) is None


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.5])
def test_the_share_is_kept_on_either_path(ratio: float) -> None:
    for fast in (0.0, 0.5, 1.0):
        traced, chance, sampled = tracer(ratio), random.Random(2), 0
        for _ in range(40_000):
            # As the proxy does: the fast path asks `due`, and leaves what is due to the slow one.
            if chance.random() < fast and not traced.due(HEAD, len(HEAD)):
                continue
            sampled += traced.begin([], proxied=True) is not None
        assert sampled == pytest.approx(40_000 * ratio, rel=0.2)


def test_all_and_none() -> None:
    always, never = tracer(1), tracer(0)
    for _ in range(100):
        assert always.due(HEAD, len(HEAD))
        assert always.begin([], proxied=True) is not None
        assert not never.due(HEAD, len(HEAD))
        assert never.begin([], proxied=True) is None


def test_a_head_with_a_context_leaves_the_fast_path() -> None:
    never = tracer(0)
    assert never.due(WITH_PARENT, len(WITH_PARENT))
    # Not what only looks like it, in a body.
    body = HEAD + b"\r\ntraceparent: x"
    assert not never.due(body, len(HEAD))


def test_a_new_trace_has_ids_of_its_own_and_a_child_its_parent_s() -> None:
    traced = tracer(1)
    root, child = traced.begin([], proxied=True), traced.begin([SAMPLED], proxied=True)
    assert root is not None
    assert child is not None
    assert len(root.context.trace_id) == 32
    assert len(root.context.span_id) == 16
    assert child.context.trace_id == SAMPLED[3:35].decode()
    assert child.context.span_id != SAMPLED[36:52].decode()


def test_spans_that_are_not_taken_are_dropped_beyond_a_limit() -> None:
    traced = Tracer(1, CLOCK, os.urandom)
    for _ in range(MAX_SPANS + 5):
        trace = traced.begin([], proxied=True)
        assert trace is not None
        trace.responded(200, "ALLOW")
    assert (traced.waiting, traced.dropped) == (MAX_SPANS, 5)
    assert len(traced.take(10)) == 10
    assert traced.waiting == MAX_SPANS - 10
