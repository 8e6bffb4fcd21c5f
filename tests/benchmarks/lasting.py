"""What judging responses that last again every second costs: `python -m tests.benchmarks.lasting
[SECONDS [STREAMS]]`, half a minute unless given.

One proxy, its source and the agents in one process. Streams that send one event a second are open
at once, judged again and not, in turn, each for so many seconds. The CPU is the whole process's;
what the two differ by is the judging.
"""

import asyncio
import resource
import sys
import time
from dataclasses import replace

from sidecar.proxy.limits import LIMITS
from tests.benchmarks.measure import CORES, Figure, directory
from tests.sidecar.proxy.raw_client import get
from tests.support.proxy import proxy_setup
from tests.support.scripted_source import Seen

SECONDS, STREAMS = 15, 50
NEVER = 1e9
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


async def events(_seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    while True:
        writer.write(b"data: an event\n\n")
        await writer.drain()
        await asyncio.sleep(1)


async def measured(judged_every: float, seconds: int, streams: int) -> tuple[float, int]:
    """CPU milliseconds a second of all streams, and the peak of the process's memory in KiB."""
    limits = replace(LIMITS, reauthorize_seconds=judged_every)
    with directory() as folder:
        async with proxy_setup(folder, limits=limits) as setup:
            setup.upstream.script = events
            writers = [await _opened(setup.port) for _ in range(streams)]
            begun = time.process_time()
            await asyncio.sleep(seconds)
            used = time.process_time() - begun
            for writer in writers:
                writer.close()
    return used * 1000 / seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def _opened(port: int) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get("/a"))
    await reader.readuntil(b"event\n\n")
    return writer


async def main() -> None:
    given = [int(each) for each in sys.argv[1:3]]
    seconds, streams = (*given, *(SECONDS, STREAMS)[len(given) :])
    print(f"{len(CORES)} cores, {streams} streams, {seconds} s each", flush=True)
    without, memory = await measured(NEVER, seconds, streams)
    with_it, more = await measured(1.0, seconds, streams)
    value = f"{with_it:.1f} ms CPU a second against {without:.1f}"
    print(Figure("streams judged again, to not", value, with_it / without, "", True).row())
    each = (with_it - without) * 1000 / streams
    print(f"{each:.0f} us a stream and second; peak memory {more - memory} KiB more")


if __name__ == "__main__":
    asyncio.run(main())
