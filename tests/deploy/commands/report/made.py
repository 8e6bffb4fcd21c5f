"""Reports made by the command, from the small logs of `tests.deploy.commands.verify.world`."""

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.report.__main__ import main
from tests.deploy.commands.verify.world import KEY, Answer, export, put

Capture = pytest.CaptureFixture[str]


def report(capsys: Capture, *arguments: str) -> Answer:
    try:
        code = main(list(arguments))
    except SystemExit as error:
        code = int(str(error.code))
    captured = capsys.readouterr()
    return Answer(code, captured.out, captured.err)


def made(
    folder: Path, capsys: Capture, *asked: str, content: bytes | None = None
) -> tuple[Any, str]:
    """The JSON and the page of a report with the key pinned."""
    path = put(folder, export() if content is None else content)
    answer = report(capsys, path, *asked, "--key", KEY, "-o", str(folder / "out"))
    assert answer.code == 0, answer.err
    wire = json.loads((folder / "out" / "report.json").read_bytes())
    return wire, (folder / "out" / "report.html").read_text("utf-8")


def seqs(wire: Any) -> list[int]:
    return [json.loads(each["entry"])["seq"] for each in wire["entries"]]
