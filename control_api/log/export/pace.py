"""Lets an export run at full speed on an idle service, and give way on a busy one. Knows only the
event loop: how much it works between two turns of the export."""

import asyncio
from time import thread_time

TURNS, IDLE = 8, 0.002
"""An event loop that works no longer than this in so many turns, in seconds, is idle. Requests that
wait come in waves, of which some turns see nothing; a background task, such as the scheduled
verification, works for a millisecond and then pauses."""
SHARE = 20
"""A busy service gets this many times the time that a page took."""
LONGEST = 0.5
"""The longest rest, in seconds: an export also advances on a service that is always busy."""


async def rest(worked: float) -> None:
    """Rests after a page that took `worked` seconds, if the service has other work."""
    # The thread's own time: on a machine that is busy with other processes, the system's scheduler
    # is fair already.
    before = thread_time()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    if thread_time() - before > IDLE:
        await asyncio.sleep(min(worked * SHARE, LONGEST))
