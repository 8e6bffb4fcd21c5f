"""An export rests on a busy service, and only there."""

from __future__ import annotations

from itertools import count
from time import thread_time

import pytest

from control_api.log.export.rows import Pace

WORK = 0.002


def works(seconds: float) -> None:
    until = thread_time() + seconds
    while thread_time() < until:
        pass


@pytest.mark.parametrize(("page", "rests"), [(WORK * 100, False), (WORK * 1.5, True)])
async def test_an_export_pauses_if_the_event_loop_is_busy_most_of_the_time(
    page: float, rests: bool
) -> None:
    """Each look at the clock is half a page later, so that the loop works for a known share."""
    ticks = count()
    pace = Pace(lambda: next(ticks) * page / 2)
    rested = []
    for _ in range(5):
        pace.begin()
        works(WORK)
        resting = pace.rest()
        try:
            resting.send(None)
        except StopIteration:
            rested.append(False)
        else:
            rested.append(True)
            resting.close()
    assert rested == [rests] * 5
