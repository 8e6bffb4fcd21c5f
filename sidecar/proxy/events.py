"""A `text/event-stream` answer of which every event is looked at before it goes on (WHATWG HTML,
server-sent events). An event is passed as it was written unless its data are changed; nothing of
one goes on before all of it is there.

Knows events. Knows nothing of what their data mean.
"""

import re
from collections.abc import Callable

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import Fields, Passed

_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def is_event_stream(fields: Fields) -> bool:
    """Whether an answer with these header fields comes as events."""
    kinds = [value for name, value in fields if name.lower() == b"content-type"]
    return bool(kinds) and all(
        kind.partition(b";")[0].strip().lower() == b"text/event-stream" for kind in kinds
    )


class Events:
    """One stream. `event` is given the data of each event (see `Prepared.event`); an event of more
    than `limit` bytes is an answer that can't be read."""

    def __init__(self, event: Callable[[bytes], Passed | None], limit: int) -> None:
        self._event = event
        self._limit = limit
        self._lines: list[bytes] = []
        self._held = 0
        self._rest = b""
        self._first = True
        self.withheld = 0

    def feed(self, data: bytes) -> bytes:
        """What may go on now that `data` has arrived. Raises `UpstreamFailed`."""
        data = self._rest + data
        # A `\r` at the end may be half of a line's end.
        held = b""
        if data.endswith(b"\r"):
            data, held = data[:-1], b"\r"
        *lines, self._rest = _LINE.split(data)
        self._rest += held
        passed = bytearray()
        for line in lines:
            if self._first:
                line = line.removeprefix(_BOM)  # noqa: PLW2901  # read once, and not passed
                self._first = False
            if line:
                self._lines.append(line)
                self._held += len(line)
            else:
                passed += self._finished()
        if self._held + len(self._rest) > self._limit:
            raise UpstreamFailed(f"an event of the answer is larger than {self._limit} bytes")
        return bytes(passed)

    def _finished(self) -> bytes:
        lines, self._lines, self._held = self._lines, [], 0
        data = [_value(line) for line in lines if line.partition(b":")[0] == b"data"]
        if not data:
            # A comment that keeps the connection alive, or an `id` by itself.
            return b"".join(line + b"\n" for line in lines) + b"\n"
        whole = b"\n".join(data)
        passed = self._event(whole)
        if passed is None:
            self.withheld += 1
            # The place in the stream is told all the same, or the agent would resume before it.
            marks = [line for line in lines if line.partition(b":")[0] in (b"id", b"retry")]
            return b"".join(line + b"\n" for line in marks) + b"\n" if marks else b""
        self.withheld += passed.withheld
        if passed.body != whole:
            others = [line for line in lines if line.partition(b":")[0] != b"data"]
            lines = [*others, *(b"data: " + line for line in passed.body.split(b"\n"))]
        return b"".join(line + b"\n" for line in lines) + b"\n"


def _value(line: bytes) -> bytes:
    return line.partition(b":")[2].removeprefix(b" ")
