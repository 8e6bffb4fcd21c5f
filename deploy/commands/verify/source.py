"""Reads an export file, compressed or not, in chunks of whole lines, and finds ids that may occur
twice in it. Both use a bounded amount of memory.

gzip and zstd are recognised by the file's first bytes.

To find repeated ids among millions, their hashes are sorted into buckets, which are held in memory
while they are small, and in a temporary file each after that. The hash is Python's own, keyed at
random for each run, so that ids can't be chosen to collide. Two different ids may still have the
same hash, so the caller compares the ids whose hashes `candidates` returns.
"""

import hashlib
import tempfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Protocol

from policies.trail.log_file.coding import line_feeds
from policies.trail.log_file.lines import MAX_LINE
from policies.trail.verdict.outcome import Unusable

PIECE = 256 * 1024
"""The number of bytes that are read or decompressed at a time, so that a file which expands a
thousandfold is never in memory as a whole."""
CHUNK = 1024 * 1024
"""The size to aim for in a chunk of lines, in bytes."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class BrokenFile(Exception):
    """the file can't be read to its end; `truncated` says that it just stops"""

    def __init__(self, message: str, *, truncated: bool) -> None:
        super().__init__(message)
        self.truncated = truncated


class Readable(Protocol):
    """The method that a file, standard input and an HTTP response have in common."""

    def read(self, size: int, /) -> bytes: ...


def pieces(file: Readable) -> Iterator[bytes]:
    """Yield the file's content, decompressed, in pieces of about `PIECE` bytes. Raises
    `BrokenFile`, and `Unusable` if no library here can read its compression."""
    first = _read(file, PIECE)
    if first.startswith(_GZIP):
        return _gunzip(file, first)
    if first.startswith(_ZSTD):
        return _unzstd(file, first)
    return _plain(file, first)


def _read(file: Readable, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise BrokenFile(f"the file can't be read: {error.strerror}", truncated=False) from error


def _plain(file: Readable, piece: bytes) -> Iterator[bytes]:
    while piece:
        yield piece
        piece = _read(file, PIECE)


def _gunzip(file: Readable, piece: bytes) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=31)
    try:
        while piece:
            output = inflate.decompress(piece, PIECE)
            if output:
                yield output
            if inflate.eof:
                # A gzip file may have several members, as `cat a.gz b.gz` makes.
                piece = inflate.unused_data or _read(file, PIECE)
                if piece:
                    inflate = zlib.decompressobj(wbits=31)
                continue
            piece = inflate.unconsumed_tail or _read(file, PIECE)
    except zlib.error as error:
        raise BrokenFile(f"its gzip compression is damaged: {error}", truncated=False) from error
    if not inflate.eof:
        raise BrokenFile("its gzip compression ends in the middle", truncated=True)


def _unzstd(file: Readable, first: bytes) -> Iterator[bytes]:
    open_reader, error_type = _zstd()
    reader = open_reader(_Rest(file, first))
    try:
        while output := reader.read(PIECE):
            yield output
    except (error_type, EOFError) as error:
        # The library does not tell damage from an early end; a line that is cut off will.
        raise BrokenFile(f"its zstd compression is damaged: {error}", truncated=False) from error


class _Rest:
    """The whole file again, after its first piece was read from it: `first` comes first, then the
    rest."""

    def __init__(self, file: Readable, first: bytes) -> None:
        self._file, self._first = file, first

    def read(self, size: int = -1) -> bytes:
        if self._first:
            given, self._first = self._first[:size], self._first[size:]
            return given
        return _read(self._file, size if size > 0 else PIECE)


def _zstd() -> tuple[Callable[[Any], Any], type[Exception]]:
    """Return a function that opens a zstd stream, and the error that the stream raises: from Python
    itself (3.14 and later), else from the package `zstandard`. Raises `Unusable` if there is
    neither."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        pass
    else:
        return zstd.ZstdFile, zstd.ZstdError
    try:
        import zstandard
    except ImportError as error:
        raise Unusable(
            "the file is compressed with zstd, and this Python can't read that: "
            "run `zstd -dc FILE | sluice verify -`, or `pip install zstandard`"
        ) from error

    def open_reader(source: Any) -> Any:
        # The window bounds the memory that a hostile file may ask for.
        return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
            source, read_across_frames=True
        )

    return open_reader, zstandard.ZstdError


class LineChunks:
    """Joins and cuts pieces of a file into chunks of whole lines; the last line feed of each chunk
    is left out. Also computes the SHA-256 that the last line of an export states, which covers
    every byte before that line."""

    def __init__(self, source: Iterator[bytes], on_bytes: Callable[[int], None]) -> None:
        self._source = source
        self._on_bytes = on_bytes
        self._digest = hashlib.sha256()
        self._unhashed = b""
        self.rest = b""
        """The bytes after the last line feed read so far: an incomplete line."""
        self.lines = 0
        """The number of lines returned so far."""
        self.fault: BrokenFile | None = None
        """The reason why the file could not be read to its end; None if there is none."""

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def line(self, most: int = MAX_LINE) -> bytes | None:
        """Return the next line by itself; None at the end of the file. A line that is longer than
        `most` bytes may be left in `rest`."""
        chunk = next(self._chunks(1, most), None)
        if chunk is None:
            return None
        line, found, more = chunk.partition(b"\n")
        if found:
            self.rest = more + b"\n" + self.rest
        self._hash(line)
        return line

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks(CHUNK):
            self._hash(chunk)
            yield chunk

    def _hash(self, chunk: bytes) -> None:
        last = chunk.rfind(b"\n") + 1
        self._digest.update(self._unhashed)
        self._digest.update(memoryview(chunk)[:last])
        self._unhashed = chunk[last:] + b"\n"
        self.lines += line_feeds(chunk) + 1

    def _chunks(self, least: int, most: int = MAX_LINE) -> Iterator[bytes]:
        """Yield chunks of at least `least` bytes; only the last one may be smaller. A line that is
        longer than `most` bytes ends the iteration, and stays in `rest`."""
        held, size, ends = [self.rest], len(self.rest), b"\n" in self.rest
        try:
            while True:
                # Pieces may be single bytes, of a gzip file of many members or of a slow answer:
                # they are joined only once a line has ended.
                if ends and size >= least and (cut := self._cut(held)) is not None:
                    yield cut
                    held, size, ends = [self.rest], len(self.rest), False
                    continue
                if size > most + least:
                    break
                piece = next(self._source, None)
                if piece is None:
                    break
                self._on_bytes(len(piece))
                held.append(piece)
                size += len(piece)
                ends = ends or b"\n" in piece
        except BrokenFile as error:
            self.fault = error
        if (cut := self._cut(held)) is not None:
            yield cut

    def _cut(self, held: list[bytes]) -> bytes | None:
        whole = b"".join(held)
        complete, found, self.rest = whole.rpartition(b"\n")
        held[:] = [self.rest]
        return complete if found else None


BUCKETS = 128
MOST_IN_MEMORY = 2_000_000
"""The most hashes that are held in memory: 16 MB, at 8 bytes each."""
MOST_CANDIDATES = 10_000
_SHIFT = 64 - 7  # 128 buckets by the 7 highest bits


class IdBuckets:
    """Collects the hashes of all ids of a file, and finds those that occur more than once."""

    def __init__(self, most_in_memory: int = MOST_IN_MEMORY) -> None:
        self._most = most_in_memory
        self._buckets = [array("q") for _ in range(BUCKETS)]
        self._files: list[IO[bytes]] | None = None
        self._held = 0

    def add(self, hashes: Sequence[int]) -> None:
        """Add hashes of ids. They must be sorted in ascending order."""
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
        """Return the hashes that occur more than once, at most `MOST_CANDIDATES` of them."""
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
    """Return the first index, from `begin` on, whose hash is not less than `below`."""
    low, high = begin, len(hashes)
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < below:
            low = middle + 1
        else:
            high = middle
    return low
