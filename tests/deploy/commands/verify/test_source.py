"""How a file is cut into chunks of lines, and what becomes of a process that has one."""

import gzip
import io
import os
import signal
from pathlib import Path

import pytest

from deploy.commands.verify import pool
from deploy.commands.verify.source import CHUNK, LineChunks, pieces
from tests.deploy.commands.verify.world import export, put, run

Capture = pytest.CaptureFixture[str]


def test_a_line_that_arrives_byte_by_byte_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_killed_process_leaves_the_log_unproven(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "walk_chunk", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    answer = run(capsys, put(tmp_path, export()), "--jobs", "2")
    assert (answer.code, answer.out) == (2, "")
    assert "nothing is proven" in answer.err
