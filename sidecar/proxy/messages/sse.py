"""Filters a `text/event-stream` response event by event (WHATWG HTML, section 9.2, "Server-sent
events"). An event is passed on once all of it has arrived, and exactly as it was written unless the
filter changes its data.

Knows how events are delimited. Knows nothing of what their data mean.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import Fields, ForwardedPart, InsertEvent
from sidecar.proxy.worker_thread import LONGEST_INLINE, Refresh, WorkerThread

_BOM = b"\xef\xbb\xbf"

# Fields of an event whose lines each begin after a `\n` and end before one. One space after the
# colon is not part of the value.
_DATA = re.compile(rb"\ndata(?:: ?([^\n]*))?(?=\n)")
_POSITION_FIELDS = re.compile(rb"\n(?:id|retry)(?::[^\n]*)?(?=\n)")


def is_event_stream(fields: Fields) -> bool:
    """Return whether a response with these header fields is an event stream
    (`text/event-stream`)."""
    kinds = [value for name, value in fields if name.lower() == b"content-type"]
    return bool(kinds) and all(
        kind.partition(b";")[0].strip().lower() == b"text/event-stream" for kind in kinds
    )


class EventParser:
    """Parses one event stream, and passes the data of each event to the filter function `event`
    (see `ForwardPlan.filter_event`). An event of more than `limit` bytes, line ends included, fails
    the response.

    The result does not depend on how the stream is cut into pieces, and the work is linear in its
    length: each byte is copied into the buffer once, and the search for an event's end resumes
    where the last search stopped.
    """

    def __init__(self, event: Callable[[bytes], ForwardedPart | None], limit: int) -> None:
        self._event = event
        self._limit = limit
        # INVARIANT: the buffer begins with the `\n` that ended the previous line, so that an
        # event ends at `\n\n` even where it has no line at all.
        self._buffer = bytearray(b"\n")
        self._start: bytes | None = b""  # until it is known whether the stream starts with a BOM
        self._after_cr = False
        self.withheld = 0

    @property
    def held(self) -> int:
        """The number of bytes that are buffered because the end of their event has not arrived."""
        return len(self._buffer)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the stream, and return the bytes that may now be forwarded. Raises
        `UpstreamFailed` if the stream can't be filtered."""
        data = self._without_bom(self._with_plain_lines(data))
        buffer = self._buffer
        searched = len(buffer) - 1
        buffer += data
        begin = 0
        forwarded = bytearray()
        while (end := buffer.find(b"\n\n", searched)) >= 0:
            self._check_size(end - begin)
            forwarded += self._filtered(bytes(buffer[begin : end + 1]))
            begin = searched = end + 1
        # Once per piece, not per event: each deletion moves what is left of the buffer.
        del buffer[:begin]
        self._check_size(len(buffer) - 1)
        return bytes(forwarded)

    def _with_plain_lines(self, data: bytes) -> bytes:
        """Return `data` with each line end replaced by `\\n`. A `\\r` ends a line at once: a `\\n`
        that follows, in this piece or the next, belongs to the same line end."""
        if not data:
            return data
        if self._after_cr:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" not in data:
            return data
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_bom(self, data: bytes) -> bytes:
        if self._start is None:
            return data
        start = self._start + data
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise UpstreamFailed(f"an event of the response is larger than {self._limit} bytes")

    def _filtered(self, event: bytes) -> bytes:
        """Return the bytes to forward for one event. `event` begins with a `\\n`, and each of its
        lines ends with one."""
        data = _DATA.findall(event)
        if not data:
            # A comment that keeps the connection alive, or an `id` by itself.
            return event[1:] + b"\n"
        whole = b"\n".join(data)
        part = self._event(whole)
        if part is None:
            self.withheld += 1
            # The position in the stream still moves on, or the agent would later resume before it.
            position = b"".join(_POSITION_FIELDS.findall(event))
            return position[1:] + b"\n\n" if position else b""
        self.withheld += part.withheld
        if part.body == whole:
            return event[1:] + b"\n"
        others = _DATA.sub(b"", event)
        return others[1:] + b"data: " + part.body.replace(b"\n", b"\ndata: ") + b"\n\n"


class FilteredStream:
    """An event stream that is filtered as it is relayed. Short pieces are filtered on the event
    loop, long ones in the worker thread; `refresh` is called before the worker thread gets any.
    `on_begin` is the `on_events` of the forward plan."""

    def __init__(
        self,
        events: EventParser,
        worker: WorkerThread,
        refresh: Refresh,
        on_begin: Callable[[InsertEvent], Callable[[], None]] | None = None,
    ) -> None:
        self._on_begin = on_begin
        self._events = events
        self._worker = worker
        self._refresh = refresh

    @property
    def withheld(self) -> int:
        """The number of documents that have been filtered out so far."""
        return self._events.withheld

    @contextmanager
    def open(self, insert: InsertEvent) -> Iterator[None]:
        """Allow the sidecar to insert events of its own with `insert`, while the response lasts.
        The bytes that `feed` returns always end with a whole event, so another event can follow
        them."""
        ended = None if self._on_begin is None else self._on_begin(insert)
        try:
            yield
        finally:
            if ended is not None:
                ended()

    async def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the stream, and return the bytes that may now be forwarded. Raises
        `UpstreamFailed` if the stream can't be filtered."""
        size = self._events.held + len(data)
        if size > LONGEST_INLINE:
            self._refresh()
        return await self._worker.call(size, self._events.feed, data)
