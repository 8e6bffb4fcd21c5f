"""The caller's decision counts; without one, the configured share of requests is sampled."""

from __future__ import annotations

import os
import random
import time

import pytest

from policies.ground.clock import Clock
from sidecar.tracing import MAX_SPANS, Tracer

SAMPLED = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = SAMPLED[:-1] + b"0"
CLOCK = Clock(lambda: time.time_ns() // 1000, time.monotonic)


def tracer(ratio: float, seed: int = 1) -> Tracer:
    return Tracer(ratio, CLOCK, random.Random(seed).randbytes)


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_the_caller_s_sampling_decision_is_followed(ratio: float) -> None:
    traced = tracer(ratio)
    for _ in range(20):
        assert traced.begin([SAMPLED], proxied=True) is not None
        assert traced.begin([UNSAMPLED], proxied=True) is None


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.5])
def test_the_configured_share_of_traces_is_sampled(ratio: float) -> None:
    traced = tracer(ratio)
    sampled = sum(traced.begin([], proxied=True) is not None for _ in range(40_000))
    assert sampled == pytest.approx(40_000 * ratio, rel=0.2)


def test_a_ratio_of_one_samples_all_and_of_zero_none() -> None:
    always, never = tracer(1), tracer(0)
    for _ in range(100):
        assert always.begin([], proxied=True) is not None
        assert never.begin([], proxied=True) is None


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
