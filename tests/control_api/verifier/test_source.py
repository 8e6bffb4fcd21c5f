"""How a file is cut into chunks of lines, however small the pieces are in which it comes."""

import gzip
import io

import pytest

from control_api.verifier.file.source import CHUNK, LineChunks, pieces


def test_a_line_in_single_bytes_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined, cut = list[int](), LineChunks._cut  # noqa: SLF001  # counts how much is joined

    def counted(chunks: LineChunks, held: list[bytes]) -> bytes | None:
        joined.append(sum(map(len, held)))
        return cut(chunks, held)

    monkeypatch.setattr(LineChunks, "_cut", counted)
    # Each member of a gzip file is a piece of its own.
    long = b"x" * CHUNK
    file = gzip.compress(b"first\n" + long) + gzip.compress(b"y") * 100 + gzip.compress(b"\nend")
    chunks = LineChunks(pieces(io.BytesIO(file)), lambda _: None)
    assert chunks.line() == b"first"
    assert list(chunks) == [long + b"y" * 100]
    assert chunks.rest == b"end"
    assert len(joined) < 10
