"""Remembers parsed request heads: a client on a kept connection sends the same head over and over,
and the same bytes always mean the same.

A head holds credentials, so its digest is kept instead of its bytes. The digest is keyed with
random bytes of this process: an attacker who obtains a digest can't use it to test guesses at a
credential. A head may be added only with a meaning (the result of reading it) that holds no
credential. `HeadTemplate` is such a meaning: it has the values that the sidecar reads, and where in
the head's bytes the fields to forward stand.
"""

from hashlib import blake2b
from typing import Any, NamedTuple

from sidecar.http.headers import RequestHead

KEY_BYTES = 32
MAX_HEADS = 1024
"""The most heads that are remembered, of about 1 KB each."""
LONGEST = 4096
"""The longest head that is remembered, in bytes."""


class KnownHead(NamedTuple):
    """A head that has been parsed before: of an HTTP/1.1 request that keeps its connection, has a
    body of `length` bytes, and offers no other protocol. `meaning` is the object that the service
    remembered for it."""

    method: str
    target: tuple[int, int]
    """The start and end of the request target in the head's bytes. The target itself isn't kept:
    its query may hold a credential."""
    length: int
    meaning: Any


class HeadCache:
    """The most recent heads of one service, found by a digest of their bytes. `key` is `KEY_BYTES`
    random bytes for the digest."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=32)
        self._heads: dict[bytes, KnownHead] = {}

    def __len__(self) -> int:
        return len(self._heads)

    def find(self, head: bytes) -> KnownHead | None:
        return self._heads.get(self._digest(head))

    def add(self, head: bytes, known: KnownHead) -> None:
        if len(head) > LONGEST:
            return
        if len(self._heads) >= MAX_HEADS:
            # Dicts keep insertion order: the first key is the oldest.
            del self._heads[next(iter(self._heads))]
        self._heads[self._digest(head)] = known

    def _digest(self, head: bytes) -> bytes:
        digest = self._keyed.copy()  # keying anew for each head would cost more than hashing it
        digest.update(head)
        return digest.digest()


_REMEMBERED = frozenset(
    (
        b"connection", b"content-encoding", b"content-length", b"content-type", b"host",
        b"keep-alive", b"x-sluice-sensitivity", b"x-sluice-session", b"x-sluice-task",
        b"x-sluice-user",
    )
)  # fmt: skip
"""The fields that the sidecar reads and that hold no credential. A head that has any other read
field is not remembered."""


class HeadTemplate:
    """A parsed head without the values of its forwarded fields, which may hold credentials. `runs`
    are the ranges of the head's bytes that are forwarded. `meaning` may hold other facts that
    follow from the head, but no credential."""

    __slots__ = ("_length", "_read", "_runs", "meaning")

    def __init__(
        self, read: dict[bytes, list[bytes]], length: bytes | None, runs: list[slice]
    ) -> None:
        self._read = read
        self._length = length
        self._runs = runs
        self.meaning: Any = None

    def fill(self, raw_head: bytes) -> RequestHead:
        """Return the whole head, with the forwarded fields taken from `raw_head`, the same bytes
        that the template was made from."""
        lines = b""
        for run in self._runs:
            lines += raw_head[run]
        return RequestHead(self._read, lines, self._length)


def head_template(
    fields: list[tuple[bytes, bytes]], head: RequestHead, raw_head: bytes
) -> HeadTemplate | None:
    """Return the template of `head`, whose original fields are `fields` and bytes `raw_head`; None
    if it may not be remembered, or if its forwarded fields are not forwarded exactly as they were
    written."""
    if not _REMEMBERED.issuperset(head.read):
        return None
    # The value differs in each request, and tracing reads it from the fields, which a remembered
    # head doesn't have.
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
