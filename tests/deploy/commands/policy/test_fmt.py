"""`sluice policy fmt` as a command: what it replaces, what it says, and what it leaves alone."""

from pathlib import Path

import pytest

from deploy.commands.policy.__main__ import main

ROUGH = b"policies:\n- agent_role: analyst # role\n  name: reads\n  allowed_sources: [ ]\n"
SMOOTH = b"policies:\n  - name: reads\n    agent_role: analyst  # role\n    allowed_sources: []\n"


def test_files_are_laid_out_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rough, smooth = tmp_path / "a" / "rough.yaml", tmp_path / "b" / "smooth.yaml"
    for path, text in ((rough, ROUGH), (smooth, SMOOTH), (tmp_path / ".hidden.yaml", ROUGH)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    as_it_was = smooth.stat().st_mtime_ns
    rough.chmod(0o640)
    assert main(["fmt", "--check", str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"would change: {rough}\n"
    assert rough.read_bytes() == ROUGH
    assert main(["fmt", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"changed: {rough}\n"
    assert rough.read_bytes() == SMOOTH
    assert rough.stat().st_mode & 0o777 == 0o640
    assert smooth.stat().st_mtime_ns == as_it_was
    assert (tmp_path / ".hidden.yaml").read_bytes() == ROUGH
    assert list(rough.parent.iterdir()) == [rough]
    assert main(["fmt", "--check", str(tmp_path)]) == 0


def test_a_link_is_formatted_and_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    target.write_bytes(ROUGH.replace(b"\n", b"\r\n"))
    link.symlink_to(target.name)
    assert main(["fmt", str(link)]) == 0
    assert link.readlink() == Path("real.yaml")
    assert target.read_bytes() == SMOOTH.replace(b"\n", b"\r\n")


def test_nothing_outside_a_folder_is_written_and_no_name_drives_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside, folder = tmp_path / "outside.yaml", tmp_path / "policies"
    outside.write_bytes(ROUGH)
    folder.mkdir()
    (folder / "link.yaml").symlink_to(outside)
    (folder / "loop.yaml").symlink_to("loop.yaml")
    named = folder / "a\x1b[2J.yaml"
    named.write_bytes(ROUGH)
    assert main(["fmt", str(folder)]) == 0
    assert outside.read_bytes() == ROUGH
    assert named.read_bytes() == SMOOTH
    assert capsys.readouterr().out.endswith("/a\\x1b[2J.yaml\n")


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "loans.yaml"
    path.write_bytes(ROUGH)
    with path.open("rb") as before:
        assert main(["fmt", str(path)]) == 0
        # The old file is whole for a reader that has it open: it was replaced, not written over.
        assert before.read() == ROUGH


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"policies: [\n", "is not YAML"),
        (b"policies: &a []\nb: *a\n", "aliases are not supported"),
        (b"policies: []\npolicies: []\n", "duplicate key"),
        (b"\xff\n", "is not UTF-8"),
        (b"services: {}\n", "is not a file of the kind"),
    ],
)
def test_a_file_that_is_not_a_policy_file_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes, said: str
) -> None:
    bad, rough = tmp_path / "bad.yaml", tmp_path / "rough.yaml"
    bad.write_bytes(text)
    rough.write_bytes(ROUGH)
    assert main(["fmt", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert bad.read_bytes() == text
    assert rough.read_bytes() == SMOOTH


def test_a_missing_path_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "not-there.yaml"]) == 2
    assert "`not-there.yaml` does not exist" in capsys.readouterr().err
