"""Runs a sidecar from start to end: opens resources, starts loops, starts listeners; stops in
reverse order.

A loop that dies ends the process, so that no half-dead sidecar decides. When asked to stop, the
sidecar reports that at `/health/ready`, accepts no more requests, finishes those in progress, ships
for a moment, and exits. Records that did not ship stay in the spool for the next start.

Knows the order. Knows neither signals nor the environment.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress

from policies.ground.clock import Clock
from policies.ground.core_form import CORE_FORM
from sidecar.assembly import Components, Listening
from sidecar.control.clock import ControlClock
from sidecar.platform.malloc import freeze_startup_objects
from sidecar.settings.model import SidecarSettings
from sidecar.spool import Spool

log = logging.getLogger(__name__)

# Kubernetes waits 30 s after SIGTERM before it kills: `drain_seconds` (10 s), then these three.
SHIP_SECONDS = 3.0
FLUSH_SECONDS = 5.0
TRACE_SECONDS = 2.0


class LoopStopped(Exception):
    """a loop that must run until the process stops has ended"""


async def serve(
    settings: SidecarSettings,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
    stop: asyncio.Event,
    announce: Callable[[], None],
) -> None:
    """Run the sidecar until `stop` is set and everything is finished. Calls `announce` when all
    ports are open. Raises the error of a resource that can't be opened, or an `ExceptionGroup` of
    the errors that ended a loop. One function, because the order of its steps is the point."""
    async with AsyncExitStack() as resources:
        time = ControlClock(clock)
        # First, because it takes the lock: two sidecars would corrupt one directory.
        spool = await Spool.open(settings.spool, settings.id, time.clock, random_bytes)
        resources.push_async_callback(spool.close, FLUSH_SECONDS)
        if settings.control.startswith("http://") and not settings.control_is_here:
            log.warning(
                "`control` is `%s`: this sidecar's key crosses the network in the clear",
                settings.control,
            )
        # If this raises, the stack closes the spool again: its lock must not outlive the attempt.
        components = Components(settings, spool, time, random_bytes, stop.set)
        resources.callback(components.close)
        resources.push_async_callback(components.replica.close)
        await resources.enter_async_context(components.control)
        if components.exporter is not None:
            await resources.enter_async_context(components.exporter)
        async with asyncio.TaskGroup() as group:
            shipping = group.create_task(_forever("shipping", components.shipper.run()))
            loops = [group.create_task(_forever("spool", spool.run())), shipping]
            loops += [
                group.create_task(_forever(name, loop)) for name, loop in components.loops().items()
            ]
            try:
                # After the loops: a decision that is made now finds a spool that writes.
                for listener in components.listeners:
                    await listener.start()
                log.info(
                    "sidecar `%s` listens on %s; the core is %s",
                    settings.id,
                    settings.listen,
                    CORE_FORM,
                )
                announce()
                freeze_startup_objects()
                await stop.wait()
                # First: a load balancer that asks now sends nothing more. The ports still answer.
                components.readiness.draining = True
                log.info("stopping: no more requests are accepted")
                await _close(components.listeners, settings.drain_seconds)
                # No request is in progress, and every record that was answered for is on disk.
                shipping.cancel()
                await asyncio.wait([shipping])
                # If the control API is away, this gives up; the records ship after the next start.
                await components.shipper.drain(clock.monotonic() + SHIP_SECONDS)
                if components.exporter is not None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TRACE_SECONDS):
                            await components.exporter.flush()
            except BaseException:
                # A loop died, or a port was taken: nothing may be decided any more, so don't drain.
                await _close(components.listeners, 0.0)
                raise
            finally:
                # Before the cancellation, see `RedisLoop.stop`.
                components.follower.stop()
                for loop in loops:
                    loop.cancel()


async def _forever(name: str, loop: Awaitable[None]) -> None:
    await loop
    raise LoopStopped(f"the loop `{name}` ended, though it must run until the process stops")


async def _close(listeners: Iterable[Listening], seconds: float) -> None:
    # All at once, so that together they take `seconds`, not `seconds` each. One that fails must not
    # keep the others open.
    closing = (listener.close(seconds) for listener in listeners)
    for failure in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(failure, BaseException):
            log.error("a listener did not close", exc_info=failure)
