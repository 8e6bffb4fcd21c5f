"""`sluice export`: the whole file in the end, whatever breaks on the way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.commands.client import export
from deploy.commands.client.download import PartialFile
from policies.trail.log_file.file import LogFileReader
from policies.trail.log_file.lines import EntryLine, HeaderLine, Line, PolicyLine, ProofLine
from tests.deploy.commands.client.conftest import Operator, evaluate
from tests.support.stack import Stack
from tests.support.waiting import until

EVENTS = 30


@pytest.fixture(scope="module")
def filled(stack: Stack) -> Stack:
    for number in range(EVENTS):
        evaluate(stack, user_id=f"u-{number}", source_id="payroll")
    return stack


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PAUSES", (0.0, 0.0, 0.0))


def lines_of(path: Path) -> list[Line]:
    """The lines of a file, which must be complete."""
    reader = LogFileReader()
    lines = list(reader.feed(path.read_bytes()))
    reader.finish()
    return lines


def seqs_of(path: Path) -> list[int]:
    entries = [line.entry for line in lines_of(path) if isinstance(line, EntryLine)]
    return [json.loads(entry)["seq"] for entry in entries]


def whole(path: Path) -> list[int]:
    header = lines_of(path)[0]
    assert isinstance(header, HeaderLine)
    return list(range(header.first, header.until))


@contextmanager
def relay(port: int, *limits: int) -> Iterator[str]:
    """An address that leads to the control API, and cuts its connections after so many bytes of the
    responses; those after them are not cut."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = iter(limits)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # the test is over
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                server.sendall(client.recv(65536))
                budget = next(left, 1 << 40)
                while budget and (piece := server.recv(min(65536, budget))):
                    client.sendall(piece)
                    budget -= len(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


@pytest.mark.usefixtures("filled")
def test_an_export_writes_the_whole_log(operator: Operator, tmp_path: Path) -> None:
    target = tmp_path / "log.ndjson"
    said = operator.done("export", "-o", str(target))
    assert seqs_of(target) == whole(target)
    assert f"{len(whole(target))} entries" in said.out
    assert not said.err
    assert not target.with_name("log.ndjson.part").exists()


@pytest.mark.usefixtures("filled")
def test_a_part_is_exported_without_personal_data(operator: Operator, tmp_path: Path) -> None:
    target = tmp_path / "log.ndjson"
    words = ("--from", "5", "--to", "9", "--no-openings", "--json")
    said = operator.done("export", "-o", str(target), *words)
    assert (said.json["entries"], said.json["from"], said.json["to"]) == (4, 5, 9)
    assert seqs_of(target) == [5, 6, 7, 8]
    assert b"u-1" not in target.read_bytes()


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_an_export_compressed_on_its_way_is_complete(
    operator: Operator, filled: Stack, tmp_path: Path, coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if coding == "zstd":
        pytest.importorskip("zstandard", reason="the extra `zstd` is not installed")
    monkeypatch.setattr(export, "LOOPBACK", ())
    monkeypatch.setattr(export, "codings", lambda: coding)
    target = tmp_path / "log.ndjson"
    with relay(filled.control.port, 6_000) as url:
        operator.done("export", "-o", str(target), "--url", url)
    assert seqs_of(target) == whole(target)


@pytest.mark.deep(stands_in="test_the_received_part_is_kept_for_the_next_run")
@pytest.mark.parametrize("limits", [(4_000,), (9_000, 200, 12_000), (700, 20_000, 3_000, 15_000)])
def test_an_export_continues_after_broken_connections(
    operator: Operator, filled: Stack, tmp_path: Path, limits: tuple[int, ...]
) -> None:
    target = tmp_path / "log.ndjson"
    with relay(filled.control.port, *limits) as url:
        said = operator.done("export", "-o", str(target), "--url", url)
    assert said.err.count("continuing in") == len(limits)
    assert seqs_of(target) == whole(target)
    # Also across connections, each document is there once.
    documents = [line for line in lines_of(target) if isinstance(line, PolicyLine)]
    assert len(documents) == len(set(documents)) >= 1


def test_the_received_part_is_kept_for_the_next_run(
    operator: Operator, filled: Stack, tmp_path: Path
) -> None:
    target, part = tmp_path / "log.ndjson", tmp_path / "log.ndjson.part"
    with relay(filled.control.port, 20_000, 0, 0, 0, 0) as url:
        said = operator("export", "-o", str(target), "--url", url)
    assert said.code == 1
    # Three times by itself; then it leaves the rest to the next run.
    assert said.err.count("continuing in") == 3
    assert "the same command continues" in said.err
    assert not target.exists()
    kept = part.read_bytes()
    # The process died while it wrote a line.
    part.write_bytes(kept + b'{"entry":{"half')
    evaluate(filled, user_id="later", source_id="payroll")
    operator.done("export", "-o", str(target))
    assert target.read_bytes().startswith(kept)
    assert seqs_of(target) == whole(target)
    assert b'"later"' not in target.read_bytes()  # the log as of the first run's start
    # Also across connections, each document is there once.
    documents = [line for line in lines_of(target) if isinstance(line, PolicyLine)]
    assert len(documents) == len(set(documents)) >= 1


def test_the_last_entry_of_a_part_without_an_end_is_requested_again(tmp_path: Path) -> None:
    """The proof behind it comes with it."""
    header = b'{"format":"sluice-log/1","log":"x","from":4,"to":7,"openings":"all"}\n'
    entries = [b'{"entry":{"seq":%d}}\n' % seq for seq in (4, 5, 6)]
    ending = [b'{"proof":[]}\n', b'{"checkpoint":"x"}\n', b'{"erasure":{}}\n', b'{"end":true']
    path = tmp_path / "log.ndjson.part"
    for kept in range(4):
        for behind in range(len(ending) + 1 if kept == 3 else 1):
            path.write_bytes(header + b"".join([*entries[:kept], *ending[:behind]]))
            file = PartialFile(path)
            file.close()
            left = min(kept, 2)
            assert (file.entries, file.next_seq) == (left, 4 + left if left else 0)
            if left:
                assert path.read_bytes() == header + b"".join(entries[:left])


@pytest.mark.deep(stands_in="test_the_last_entry_of_a_part_without_an_end_is_requested_again")
def test_a_connection_that_breaks_behind_the_last_entry_leaves_nothing_out(
    operator: Operator, filled: Stack, tmp_path: Path
) -> None:
    def part(name: str, url: str = "") -> Path:
        target = tmp_path / name
        target.unlink(missing_ok=True)
        words = ("--url", url) if url else ()
        operator.done("export", "-o", str(target), "--to", str(EVENTS), *words)
        return target

    def proven() -> bool:
        return isinstance(lines_of(part("whole"))[-3], ProofLine)

    until("a checkpoint covers the part", proven)
    whole_part = tmp_path / "whole"
    lines, size = lines_of(whole_part), whole_part.stat().st_size
    # The response has a head, too: these cuts lie in and around the proof and the lines behind it.
    for number, back in enumerate(range(-300, 1000, 200)):
        with relay(filled.control.port, size - back) as url:
            cut = lines_of(part(f"cut-{number}", url))
        assert cut[1:-1] == lines[1:-1]


BEGUN = b'{"format":"sluice-log/1","log":"x","from":0,"to":9,"openings":"all"}\n%b\n'


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        (b"my diary\n", (), "does not begin with the header of an export"),
        (BEGUN % b'{"entry":x}', (), "is damaged"),
        (BEGUN % b'{"entry":{"seq":0}}', (), "name another file"),
        (BEGUN % b'{"entry":{"seq":0}}', ("--no-openings",), "was begun with `openings=all`"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_another_partial_file_is_not_continued(
    operator: Operator, tmp_path: Path, content: bytes, words: tuple[str, ...], expected: str
) -> None:
    part = tmp_path / "log.ndjson.part"
    part.write_bytes(content)
    said = operator("export", "-o", str(tmp_path / "log.ndjson"), *words)
    assert said.code in (1, 2)
    assert expected in said.err
    assert part.read_bytes() == content


def test_a_file_is_never_overwritten(operator: Operator, tmp_path: Path) -> None:
    target = tmp_path / "log.ndjson"
    target.write_text("mine")
    said = operator("export", "-o", str(target))
    assert (said.code, target.read_text()) == (2, "mine")
    said = operator("export", "-o", str(tmp_path / "absent" / "log.ndjson"))
    assert said.code == 2
    assert "No such file" in said.err


def test_refusals_are_not_retried(operator: Operator, tmp_path: Path) -> None:
    refused = ("--from", "9" * 20)
    said = operator("export", "-o", str(tmp_path / "log.ndjson"), *refused)
    assert said.code == 1
    assert "from: " in said.err


@pytest.mark.parametrize("form", ["log", "csv"])
def test_only_its_owner_may_read_an_export(
    filled: Stack, operator: Operator, tmp_path: Path, form: str
) -> None:
    target = tmp_path / "log.ndjson"
    words = () if form == "log" else ("--format", form)
    # A version before this one may have begun it.
    (tmp_path / "log.ndjson.part").touch(0o644)
    operator.done("export", "-o", str(target), *words)
    assert target.stat().st_mode & 0o777 == 0o600
