"""The distribution is `sluice-governance`, on no index; `sluice` there is a stranger's."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from policies import __version__
from policies.ground.distribution import DISTRIBUTION, WHEEL, install_command
from tests.architecture.tree import ROOT, files

OURS = {"sluice", "sluice-governance", "sluice-guard"}
INSTALLING = re.compile(r"\b(?:pip3?|pipx|uv tool) install\b([^\n`;|&<]*)|\buvx ([^\n`;|&<]*)")
# Written by an earlier version, and kept as it was.
RECORDED = "tests/compatibility/recorded/"


def texts() -> Iterator[tuple[str, str]]:
    """Every file but this one that may tell how to install Sluice, by its name."""
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(RECORDED) or path == Path(__file__):
            continue
        raw = path.read_bytes()
        # Looking for these first is much cheaper than the patterns.
        if any(word in raw for word in (b" install", b"uvx ", b"sluice[", b"sluice_governance-")):
            yield name, raw.decode("utf-8", "replace")


def from_an_index(text: str) -> list[str]:
    """What a text installs of ours by name, rather than from a file or a folder."""
    found = " ".join(" ".join(each) for each in INSTALLING.findall(text))
    words = [word.strip("'\"") for word in found.split()]
    names = {word: re.split(r"[\[=<>~!@]", word)[0].replace("_", "-").lower() for word in words}
    return [word for word, name in names.items() if name in OURS]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("run `pip install sluice`", ["sluice"]),
        ("pip install --no-deps 'sluice[server]'", ["sluice[server]"]),
        ("pip install sluice_governance==0.1.0", ["sluice_governance==0.1.0"]),
        ("pipx install Sluice-Governance\n", ["Sluice-Governance"]),
        ("pip install sluice-guard crewai", ["sluice-guard"]),
        ("pip uninstall sluice", []),
        ("helm install sluice deploy/helm/sluice", []),
        (install_command(), []),
        (install_command("server"), []),
        ("pip install ./deploy/sdk/python langchain-core", []),
    ],
)
def test_an_installation_from_an_index_is_recognised(text: str, found: list[str]) -> None:
    assert from_an_index(text) == found


def test_no_text_installs_ours_from_an_index_or_a_wheel_of_another_version() -> None:
    wrong = {}
    for name, text in texts():
        wheels = re.findall(r"sluice_governance-\d[\w.]*-py3-none-any\.whl", text)
        if bad := [*from_an_index(text), *(each for each in wheels if each != WHEEL)]:
            wrong[name] = bad
        # A requirement with extras, by the distribution's old name.
        if old := re.findall(r"(?<![\w./-])sluice\[[a-z]+[,\]][^\n]{0,20}", text):
            wrong[name] = [*wrong.get(name, []), *old]
    assert not wrong


def test_the_distribution_is_found_by_its_name_and_by_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert [*project["scripts"]] == ["sluice"]
    assert version(DISTRIBUTION) == __version__
    # `make` removes the old distribution of this import name from a `.venv` that has it.
    with pytest.raises(PackageNotFoundError):
        version("sluice")
