"""Random bytes drawn in blocks: none is handed out twice."""

from __future__ import annotations

import os

import pytest

from policies.ground.ids import BLOCK, RandomBuffer


@pytest.mark.parametrize("large", [4096, BLOCK, BLOCK + 1])
def test_no_byte_is_returned_twice(large: int) -> None:
    drawn = bytearray()

    def source(size: int) -> bytes:
        made = os.urandom(size)
        drawn.extend(made)
        return made

    random_bytes, end = RandomBuffer(source), 0
    for size in (42, 4, 16, 4000, 42, 5000, 42, large, 32) * 5:
        given = random_bytes(size)
        assert len(given) == size
        at = drawn.find(given, end)
        assert at >= end
        end = at + size
