"""A stream of events as it is filtered: short events on the loop, long ones in the worker thread.
Knows nothing of what events mean."""

from sidecar.proxy.messages.sse import EventParser
from sidecar.proxy.worker_thread import LONGEST_INLINE, Fresh, WorkerThread


class FilteredStream:
    """`events` of one answer. `fresh` is called before the worker looks at them."""

    def __init__(self, events: EventParser, worker: WorkerThread, fresh: Fresh) -> None:
        self._events = events
        self._worker = worker
        self._fresh = fresh

    @property
    def withheld(self) -> int:
        """How many documents were left out so far."""
        return self._events.withheld

    async def feed(self, data: bytes) -> bytes:
        """What may go on now that `data` has arrived. Raises `UpstreamFailed`."""
        size = self._events.held + len(data)
        if size > LONGEST_INLINE:
            self._fresh()
        return await self._worker.call(size, self._events.feed, data)
