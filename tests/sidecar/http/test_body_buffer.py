"""What a body takes while it arrives is what its lease holds, and no more."""

import itertools
import tracemalloc

import pytest

from sidecar.http.request_body import BodyBudget, BodyBudgetExceeded, BodyBuffer

OBJECTS = 49_152
"""Bytes of the objects around a buffer, of what counts them, and of the threads that earlier tests
left: less than one part, or the eighth that a growing `bytearray` takes."""
BODY = bytes(range(256)) * 4000
PARTS = {"even": [65_536], "uneven": [1, 300_000, 7, 50_000], "whole": [len(BODY)]}


@pytest.mark.parametrize("most", [len(BODY), 4 << 20], ids=["a stated length", "none"])
@pytest.mark.parametrize("sizes", PARTS.values(), ids=PARTS)
def test_a_buffer_takes_no_more_than_its_lease_holds(sizes: list[int], most: int) -> None:
    budget = BodyBudget()
    lease, at, sizes_again = budget.lease(), 0, itertools.cycle(sizes)
    parts = []
    while at < len(BODY):
        parts.append(BODY[at : at + next(sizes_again)])
        at += len(parts[-1])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        buffer = BodyBuffer(most, lease)
        for part in parts:
            tracemalloc.reset_peak()
            buffer.append(part)
            assert tracemalloc.get_traced_memory()[1] - before <= budget.held + OBJECTS
        held = budget.held
        tracemalloc.reset_peak()
        whole = buffer.take()
        now, most_taken = (each - before for each in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert whole == BODY
    assert most_taken <= held + OBJECTS, "nothing is copied at the end"
    assert budget.held == len(BODY)
    assert now <= len(BODY) + OBJECTS
    lease.release()
    assert budget.held == 0


def test_a_body_of_a_stated_length_takes_that_length() -> None:
    budget = BodyBudget()
    buffer = BodyBuffer(len(BODY) + 1, budget.lease())
    buffer.append(BODY)
    assert budget.held == len(BODY) + 1


def test_a_part_that_has_no_room_is_not_kept() -> None:
    budget = BodyBudget(300_000)
    with budget.lease() as lease:
        buffer = BodyBuffer(4 << 20, lease)
        buffer.append(b"x" * 200_000)
        with pytest.raises(BodyBudgetExceeded):
            buffer.append(b"x" * 200_000)
        assert buffer.length == 200_000
        assert budget.held <= 300_000
    assert (budget.held, budget.refused) == (0, 1)
