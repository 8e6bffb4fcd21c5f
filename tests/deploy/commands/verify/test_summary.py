"""What people read: golden texts of the summary, and the README's command."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.commands.verify.world import KEY, ROWS, SIZE, WITNESS_KEY, export, note, put, run
from tests.deploy.commands.verify.world import witnessed as cosigned
from tests.policies.world import START, Log, decided
from tests.support.documents import commands, paste

Capture = pytest.CaptureFixture[str]


def silent() -> bytes:
    """A service that was stopped over two nights, and again when the file was made."""
    log = Log()
    for number, hours in enumerate((0, 1, 1, 14, 15, 16, 31, 32)):
        log.direct(decided(seed=number), at=START + hours * 3_600_000_000)
    notes = {len(log.rows): note(len(log.rows), log.rows)}
    return export(log.rows, notes=notes, made_at="2026-01-02T12:00:00.000000Z")


GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    "signed": (export, ["--key", KEY]),
    "unsigned": (lambda: export(notes={}), []),
    "witnessed": (
        lambda: export(notes={SIZE: cosigned(note(SIZE))}),
        ["--key", KEY, "--witness", WITNESS_KEY],
    ),
    "not_witnessed": (export, ["--key", KEY, "--witness", WITNESS_KEY]),
    "tail": (lambda: export(notes={10: note(10)}), ["--key", KEY]),
    "part": (lambda: export(ROWS[8:20], first=8, tail=note(SIZE)), ["--key", KEY]),
    "silent": (silent, ["--key", KEY]),
    "changed": (
        lambda: export(
            [*ROWS[:5], ROWS[5]._replace(entry=ROWS[5].entry.replace(b"DENY", b"DONT")), *ROWS[6:]]
        ),
        ["--key", KEY],
    ),
    "truncated": (lambda: export()[:-200], ["--key", KEY]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_summary_describes_what_is_proven(
    name: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, arguments = CASES[name]
    put(tmp_path, make())
    monkeypatch.chdir(tmp_path)
    out = run(capsys, "log.jsonl", *arguments).out
    assert out == (GOLDEN / f"{name}.txt").read_text()


def test_the_readme_s_command_verifies_a_file(tmp_path: Path) -> None:
    import gzip

    put(tmp_path, gzip.compress(export()), "log.ndjson")
    put(tmp_path, f"{KEY}\n".encode(), "log.pub")
    script = commands(
        "deploy/commands/verify/README.md", "verify a file, with the key's text in log.pub"
    )
    root = Path(__file__).parents[4]
    sluice = f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n'
    program = tmp_path / "bin" / "sluice"
    program.parent.mkdir()
    program.write_text(sluice)
    program.chmod(0o755)
    done = paste(
        script, tmp_path, {"PATH": f"{program.parent}:/usr/bin:/bin", "PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^OK: `log.ndjson` holds$", done.stdout, re.MULTILINE)


EVIL = "\x1b[2J\x1b[H\r\nOK: the log holds\nlevel         witnessed\x9b31m\u2028\u202e\x7f"
PLACES = (
    *("format", "log", "origin", "key", "made_at", "eid", "kind", "ts", "prev", "policy_id"),
    *("checkpoint", "sha256"),
)
"""The members of the file whose text begins with this."""


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("place", PLACES)
def test_no_value_of_a_file_can_imitate_our_lines_or_control_a_terminal(
    place: str, form: list[str], tmp_path: Path, capsys: Capture
) -> None:
    begins, content = b'"%b":"' % place.encode(), export()
    assert begins in content
    changed = content.replace(begins, begins + json.dumps(EVIL)[1:-1].encode())
    answer = run(capsys, put(tmp_path, changed), "--key", KEY, *form)
    assert answer.code in (1, 2)
    for line in (answer.out + answer.err).split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.startswith("OK")
        assert not re.match(r"level +witnessed", line)


def test_no_name_of_a_file_can_imitate_our_lines_or_control_a_terminal(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "log\x1b[2J\nOK: holds").write_bytes(b"")
    for name in ("log\x1b[2J\nOK: holds", "gone\x1b[2J\nOK: holds"):
        answer = run(capsys, str(tmp_path / name), "--key", KEY)
        assert answer.code in (1, 2)
        said = (answer.out + answer.err).split("\n")
        assert all(line.isprintable() and not line.startswith("OK") for line in said)
