"""`sluice export --format`: every decision once, whatever breaks on the way."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from deploy.commands.client import export
from deploy.commands.client.export import FORMATS
from tests.deploy.commands.client.conftest import Operator, evaluate
from tests.deploy.commands.client.test_export import relay
from tests.support.stack import Stack

EVENTS = 30


@pytest.fixture(scope="module")
def filled(stack: Stack) -> Stack:
    for number in range(EVENTS):
        evaluate(stack, user_id=f"u-{number}", source_id="payroll")
    return stack


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PAUSES", (0.0, 0.0, 0.0))


def whole(stack: Stack, form: str) -> list[bytes]:
    """The lines of one response."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.control.port, timeout=30)
    path = f"/v1/audit/export?format={form}"
    connection.request("GET", path, headers={"X-API-Key": stack.admin_key})
    raw = connection.getresponse().read()
    connection.close()
    return raw.splitlines(keepends=True)


@pytest.mark.parametrize("form", FORMATS)
def test_the_file_has_the_lines_of_the_response(
    operator: Operator, filled: Stack, tmp_path: Path, form: str
) -> None:
    target = tmp_path / "decisions"
    said = operator.done("export", "--format", form, "-o", str(target), "--json")
    lines = whole(filled, form)
    assert target.read_bytes() == b"".join(lines)
    assert said.json == {"file": str(target), "decisions": len(lines) - (form == "csv")}
    assert not target.with_name("decisions.part").exists()


@pytest.mark.deep(stands_in="test_the_received_lines_are_kept_for_the_next_run")
@pytest.mark.parametrize("form", FORMATS)
def test_an_export_of_decisions_continues_after_broken_connections(
    operator: Operator, filled: Stack, tmp_path: Path, form: str
) -> None:
    target = tmp_path / "decisions"
    with relay(filled.control.port, 4_000, 200, 9_000) as url:
        said = operator.done("export", "--format", form, "-o", str(target), "--url", url)
    assert said.err.count("continuing in") == 3
    assert target.read_bytes() == b"".join(whole(filled, form))


@pytest.mark.parametrize("form", ["ecs", "csv"])
def test_the_received_lines_are_kept_for_the_next_run(
    operator: Operator, filled: Stack, tmp_path: Path, form: str
) -> None:
    target, part = tmp_path / "decisions", tmp_path / "decisions.part"
    words = ("export", "--format", form, "-o", str(target))
    with relay(filled.control.port, 9_000, 0, 0, 0, 0) as url:
        said = operator(*words, "--url", url)
    assert said.code == 1
    # Three times by itself; then it leaves the rest to the next run.
    assert said.err.count("continuing in") == 3
    assert "the same command continues" in said.err
    lines = whole(filled, form)
    kept = part.read_bytes()
    assert b"".join(lines).startswith(kept)
    assert kept.endswith(b"\n")
    part.write_bytes(kept + lines[-1][:20])  # as a crash leaves it
    operator.done(*words)
    assert target.read_bytes() == b"".join(lines)


@pytest.mark.usefixtures("filled")
def test_a_part_of_the_decisions_is_exported_without_personal_data(
    operator: Operator, tmp_path: Path
) -> None:
    target = tmp_path / "decisions"
    words = ("--from", "5", "--to", "9", "--no-openings")
    operator.done("export", "--format", "csv", "-o", str(target), *words)
    assert len(target.read_bytes().splitlines()) <= 5
    assert b"u-" not in target.read_bytes()


@pytest.mark.usefixtures("filled")
def test_another_file_is_not_continued(operator: Operator, tmp_path: Path) -> None:
    target, part = tmp_path / "decisions", tmp_path / "decisions.part"
    part.write_bytes(b'{"event": {}}\n')
    said = operator("export", "--format", "ocsf", "-o", str(target))
    assert said.code == 1
    assert "is no decision in the format `ocsf`" in said.err
    assert part.read_bytes() == b'{"event": {}}\n'
    assert not target.exists()


@pytest.mark.usefixtures("filled")
def test_an_unknown_format_is_refused(operator: Operator, tmp_path: Path) -> None:
    assert operator("export", "--format", "xml", "-o", str(tmp_path / "x")).code == 2
