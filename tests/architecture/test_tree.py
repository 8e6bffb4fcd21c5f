"""Which files the project consists of, and what no file may contain."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.architecture.tree import GENERATED, PACKAGES, ROOT, files

# In pieces, so that this file does not find itself.
REGISTRIES = ("pypi" + ".org", "files.python" + "hosted", "registry." + "npmjs", "deb." + "debian")
HOMES = re.compile(r"(?<![\w.~-])/(?:home|root|Users|work|opt/py)" + r"/\w")


def test_the_root_holds_what_the_architecture_names_and_no_more() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert found - GENERATED == {
        *PACKAGES,
        "tests",
        "pyproject.toml",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "Makefile",
        "requirements.lock",
    }


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if HOMES.search(line) or any(host in line for host in REGISTRIES):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found


def test_the_lock_pins_by_hash_and_names_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)
    blocks = re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", text, re.MULTILINE)
    assert len(blocks) > 50
    for block in blocks:
        assert re.match(r"[a-z0-9][a-z0-9.-]*==\S+ ", block), block
        assert "--hash=sha256:" in block, block


def test_the_lock_holds_whatever_the_project_asks_for() -> None:
    config = (ROOT / "pyproject.toml").read_text()
    asked = re.findall(r'^ {4}"([A-Za-z0-9_.-]+)(?:\[\w+\])?>=', config, re.MULTILINE)
    pinned = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements.lock").read_text(), re.M))
    assert len(asked) > 20
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in asked} <= pinned


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_every_package_has_a_readme_of_some_length(package: str) -> None:
    readme = ROOT / package / "README.md"
    assert readme.exists()
    assert len(readme.read_text().split()) > 100


def test_every_module_begins_with_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not path.read_text().lstrip().startswith('"""') and path.read_text().strip()
    ]
    assert not silent


def test_ci_runs_lint_and_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert re.search(r"\nmake lint .*&( #.*)?\nlinting=\$!\n", text)
    assert '\nmake test\nif ! wait "$linting"; then\n' in text
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_ci_tests_the_compiled_core_where_it_can_be_compiled() -> None:
    """The shell would pass a name that is gone on to pytest, long after the whole suite ran."""
    text = (ROOT / ".ci" / "run").read_text()
    assert "-m deploy.compile check; then" in text
    chosen = re.search(r"make quick COMPILED=1 ARGS='([^']+)'", text)
    assert chosen is not None
    assert [name for name in chosen[1].split() if not (ROOT / name).exists()] == []


def test_ci_runs_in_a_folder_whose_name_has_a_blank() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert 'mktemp -d "$home/sluice ci.' in text
