"""What can be remembered of a request's head without its credentials: the values that are read
here, and where in its bytes the fields stand that are forwarded.

Knows fields. Knows no connection.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sidecar.http.headers import RequestHead, decode_fields

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


class _LazyFields:
    """The forwarded fields, parsed only for the few protocols that look at them."""

    __slots__ = ("_lines",)

    def __init__(self, lines: bytes) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(decode_fields(self._lines))


class HeadTemplate(NamedTuple):
    """A head without the values of its forwarded fields. `runs` are the ranges of bytes that are
    forwarded."""

    read: dict[bytes, list[bytes]]
    length: bytes | None
    runs: tuple[tuple[int, int], ...]

    def fill(self, raw_head: bytes) -> RequestHead:
        """The head, from the same bytes that the template was made of."""
        lines = b"".join([raw_head[begin:end] for begin, end in self.runs])
        return RequestHead(_LazyFields(lines), self.read, lines, self.length)


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
    runs: list[tuple[int, int]] = []
    remaining = iter(head.forward)
    expected = next(remaining, None)
    at = raw_head.find(b"\r\n") + 2
    for field in fields:
        line = b"%b: %b\r\n" % field
        end = at + len(line)
        if raw_head[at:end] != line:
            return None
        # By identity: `head.forward` holds the same objects, as long as they are unchanged.
        if field is expected:
            expected = next(remaining, None)
            if runs and runs[-1][1] == at:
                runs[-1] = runs[-1][0], end
            else:
                runs.append((at, end))
        at = end
    if expected is not None or at + 2 != len(raw_head):
        return None
    return HeadTemplate(head.read, head.length, tuple(runs))
