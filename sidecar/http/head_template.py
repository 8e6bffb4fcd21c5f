"""What can be remembered of a request's head without its credentials: the values that are read
here, and where in its bytes the fields stand that are forwarded.

Knows fields. Knows no connection.
"""

from typing import Any

from sidecar.http.headers import RequestHead

_REMEMBERED = frozenset(
    (
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"keep-alive",
        b"x-sluice-sensitivity",
        b"x-sluice-session",
        b"x-sluice-task",
        b"x-sluice-user",
    )
)
"""The fields that are read here and hold no credential. A head with any other is read anew."""


class HeadTemplate:
    """A head without the values of its forwarded fields. `runs` are the ranges of bytes that are
    forwarded. `meaning` may hold what else follows from the head, but no credential."""

    __slots__ = ("_length", "_read", "_runs", "meaning")

    def __init__(
        self, read: dict[bytes, list[bytes]], length: bytes | None, runs: list[slice]
    ) -> None:
        self._read = read
        self._length = length
        self._runs = runs
        self.meaning: Any = None

    def fill(self, raw_head: bytes) -> RequestHead:
        """The head, from the same bytes that the template was made of."""
        lines = b""
        for run in self._runs:
            lines += raw_head[run]
        return RequestHead(self._read, lines, self._length)


def head_template(
    fields: list[tuple[bytes, bytes]], head: RequestHead, raw_head: bytes
) -> HeadTemplate | None:
    """The template of `head`, which `fields` were sorted into; None if it may not be remembered, or
    if its forwarded fields are not forwarded as they were written."""
    if not _REMEMBERED.issuperset(head.read):
        return None
    # Each request has another one, and tracing reads it from the fields, which a remembered head
    # doesn't have.
    if any(name.lower() == b"traceparent" for name, _ in fields):
        return None
    runs: list[slice] = []
    forwarded, at = 0, raw_head.find(b"\r\n") + 2
    for field in fields:
        line = b"%b: %b\r\n" % field
        end = at + len(line)
        if raw_head[at:end] != line:
            return None
        # Equal fields have equal rules, so a field that reads like the next one to forward is
        # itself forwarded.
        if head.lines.startswith(line, forwarded):
            forwarded += len(line)
            begin = runs.pop().start if runs and runs[-1].stop == at else at
            runs.append(slice(begin, end))
        at = end
    if forwarded != len(head.lines) or at + 2 != len(raw_head):
        return None
    return HeadTemplate(head.read, head.length, runs)
