"""A sidecar's life: resources, then loops, then listeners; and the same backwards.

A loop that dies ends the process: nothing half-alive decides. Told to stop, the sidecar says so at
`/health/ready`, accepts nothing more, finishes what is under way, ships for a moment, and goes;
what did not ship lies in the spool for the next start.

Knows the order of things. Knows neither signals nor the environment.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack

from policies.ground.clock import Clock
from sidecar.assembly import Components, Listening
from sidecar.control.clock import ControlClock
from sidecar.platform.malloc import settle
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool

log = logging.getLogger(__name__)

SHIP_SECONDS = 3.0
FLUSH_SECONDS = 5.0


class LoopStopped(Exception):
    """a loop that must run as long as the process has ended"""


async def serve(
    settings: SidecarSettings, clock: Clock, entropy: Callable[[int], bytes], stop: asyncio.Event
) -> None:
    """Returns once `stop` was set and everything is finished. Raises what could not be opened, or
    an `ExceptionGroup` of what died."""
    async with AsyncExitStack() as resources:
        time = ControlClock(clock)
        # First, for it holds the lock: two sidecars on one directory would ruin each other.
        spool = await Spool.open(settings.spool, settings.id, time.clock, entropy)
        resources.push_async_callback(spool.close, FLUSH_SECONDS)
        if settings.control.startswith("http://") and not settings.control_is_here:
            log.warning(
                "`control` is `%s`: this sidecar's key crosses the network in the clear",
                settings.control,
            )
        parts = Components(settings, spool, time, entropy)
        resources.callback(parts.cache_file.close)
        resources.push_async_callback(parts.copy.close)
        await resources.enter_async_context(parts.centre)
        async with asyncio.TaskGroup() as group:
            shipping = group.create_task(_forever("shipping", parts.shipper.run()))
            loops = [
                group.create_task(_forever("spool", spool.run())),
                group.create_task(_forever("policy set", parts.follower.run())),
                group.create_task(_forever("reports", parts.reporter.run())),
                shipping,
            ]
            try:
                await _listen(parts.listeners)
                log.info("sidecar `%s` listens on %s", settings.id, settings.listen)
                settle()
                await stop.wait()
                parts.readiness.draining = True
                log.info("stopping: no more requests are taken")
                await _close(parts.listeners, settings.drain_seconds)
                # Nothing is under way any more, and every record that was answered for is on disk.
                shipping.cancel()
                await asyncio.wait([shipping])
                await parts.shipper.drain(clock.monotonic() + SHIP_SECONDS)
            except BaseException:
                await _close(parts.listeners, 0.0)
                raise
            finally:
                parts.follower.stop()
                for loop in loops:
                    loop.cancel()


async def _forever(name: str, loop: Awaitable[None]) -> None:
    await loop
    raise LoopStopped(f"the loop `{name}` ended")


async def _listen(listeners: Iterable[Listening]) -> None:
    for listener in listeners:
        await listener.start()


async def _close(listeners: Iterable[Listening], seconds: float) -> None:
    closing = (listener.close(seconds) for listener in listeners)
    for failure in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(failure, BaseException):
            log.error("a listener did not close", exc_info=failure)
