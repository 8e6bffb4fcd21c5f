"""Finds ids that occur twice among millions, in bounded memory: hashes of the ids are kept in
buckets, in memory as long as they are few, then in a temporary file each.

The hash is Python's own of bytes, keyed at random for each run, so ids can't be chosen to collide.
Two different ids with one hash are still possible, so the caller compares the ids that `candidates`
points to.
"""

import tempfile
from array import array
from collections.abc import Sequence
from typing import IO

BUCKETS = 128
MOST_IN_MEMORY = 2_000_000
"""The most hashes, of 8 bytes each, that are held in memory: 16 MiB."""
MOST_CANDIDATES = 10_000
_SHIFT = 64 - 7  # 128 buckets by the 7 highest bits


class IdBuckets:
    """All ids of a walk, by their hashes."""

    def __init__(self, most_in_memory: int = MOST_IN_MEMORY) -> None:
        self._most = most_in_memory
        self._buckets = [array("q") for _ in range(BUCKETS)]
        self._files: list[IO[bytes]] | None = None
        self._held = 0

    def add(self, hashes: Sequence[int]) -> None:
        """Add the hashes of a range, in ascending order."""
        begin = 0
        for place, bucket in enumerate(self._buckets):
            # Signed: the buckets begin at the smallest integer of 64 bits.
            end = _bisect(hashes, ((place + 1) << _SHIFT) - 2**63, begin)
            bucket.extend(hashes[begin:end])
            begin = end
        self._held += len(hashes)
        if self._held > self._most:
            self._spill()

    def candidates(self) -> set[int]:
        """Return the hashes that occur more than once."""
        found: set[int] = set()
        for place, bucket in enumerate(self._buckets):
            if self._files is not None:
                file = self._files[place]
                stored = array("q")
                stored.frombytes(_content(file))
                stored.extend(bucket)
                bucket = stored  # noqa: PLW2901
            before = None
            for each in sorted(bucket):
                if each == before and len(found) < MOST_CANDIDATES:
                    found.add(each)
                before = each
        return found

    def close(self) -> None:
        for file in self._files or ():
            file.close()

    def _spill(self) -> None:
        if self._files is None:
            self._files = [tempfile.TemporaryFile() for _ in range(BUCKETS)]  # noqa: SIM115
        for file, bucket in zip(self._files, self._buckets, strict=True):
            file.write(bucket.tobytes())
            del bucket[:]
        self._held = 0


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _bisect(hashes: Sequence[int], below: int, begin: int) -> int:
    """Return the first place from `begin` on whose hash is not less than `below`."""
    low, high = begin, len(hashes)
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < below:
            low = middle + 1
        else:
            high = middle
    return low
