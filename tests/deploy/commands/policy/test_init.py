"""`sluice policy init`: what it writes is clean to every other command; it replaces nothing."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from deploy.commands.policy.__main__ import main
from deploy.commands.policy.schema import IN_POLICY_DIRECTORY, schema
from policies.definitions.load import load_definitions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "new" / "policies"
    assert main(["init", str(folder)]) == 0
    return folder


def test_the_sample_policies_have_no_findings(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    said = capsys.readouterr().out
    assert main(["lint", str(folder)]) == 0
    assert main(["check", str(folder)]) == 0
    assert main(["fmt", "--check", str(folder)]) == 0
    assert capsys.readouterr().out == ""
    definitions = load_definitions(folder, "default")
    assert main(["test", str(folder), "--coverage", "--min-coverage", "100"]) == 0
    assert (len(definitions.policies), len(definitions.guardrails)) == (2, 3)
    for path in folder.rglob("*.*"):
        if path.is_file():
            assert f"wrote {path}\n" in said
    # The command is quoted where the path of this installation has a blank.
    assert re.search(rf"sluice'? policy lint {re.escape(str(folder))}\n", said)


def test_every_file_names_an_existing_schema(folder: Path) -> None:
    for path in folder.rglob("*.yaml"):
        start = "# yaml-language-server: $schema="
        first = path.read_text().splitlines()[0]
        assert first.startswith(start)
        assert (path.parent / first.removeprefix(start)).is_file()
    for kind in IN_POLICY_DIRECTORY:
        assert (folder / f"{kind}.schema.json").read_text() == schema(kind)


def test_an_empty_directory_is_accepted(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0


@pytest.mark.parametrize("name", [".hidden", "default"])
def test_a_directory_that_is_not_empty_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "is not an empty directory; name a new one" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_in_place_of_a_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 2
    assert main(["init", str(tmp_path / "file" / "below")]) == 2
    assert "can't be written" in capsys.readouterr().err


def test_the_next_steps_work_as_they_are_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("", str(Path(sys.executable).parent)):
        name = f"my rules{len(path)}"
        monkeypatch.setenv("PATH", path)
        assert main(["init", name]) == 0
        steps = re.findall(r"(?m)^  ([^#].*)$", capsys.readouterr().out)
        commands = [shlex.split(step) for step in steps]
        *checks, (setting, program, *up) = commands
        assert (setting, up) == (f"SLUICE_POLICY_DIR={tmp_path / name}", ["up", "--free-ports"])
        # Neither the current folder nor the shell's path matters to what is printed.
        assert {words[0] for words in checks} == {program}
        assert shutil.which(program)
        assert (program == "sluice") == bool(path)
        for _, noun, *words in checks:
            assert (noun, main(words)) == ("policy", 0), words
        assert "underwriting-reads" in capsys.readouterr().out
