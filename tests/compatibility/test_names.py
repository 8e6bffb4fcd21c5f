"""An upgrade takes no name away, and the changelog tells of each that is new. A settings file of
the previous version goes on as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from control_api import settings as control
from policies.ground.settings import SettingsError
from sidecar.config import file as sidecar
from tests.architecture.tree import ROOT
from tests.compatibility.exchanges import RECORDED
from tests.compatibility.names import names_in, told

RECORDING = sorted(RECORDED.iterdir())[-1] / "installation"
UNRELEASED = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
KEYS = {"agent.key": "evaluate", "sidecar.key": "sidecar"}
EXAMPLE = RECORDING / "sidecar.example.yaml"
_COMMENTED = re.compile(r"^( *)#(?=\S|  )", re.MULTILINE)


@pytest.mark.parametrize("kind", ["routes", "settings", "sidecar", "metrics"])
def test_no_name_is_gone_and_each_new_one_is_in_the_changelog(kind: str) -> None:
    before = set(json.loads((RECORDING / "names.json").read_text())[kind])
    now = set(names_in(ROOT)[kind])
    assert before, "the recording has none"
    gone = {name for name in before - now if not told(UNRELEASED, name)}
    assert (gone, [name for name in sorted(now - before) if not told(UNRELEASED, name)]) == (
        set(),
        [],
    )


def complaints(folder: Path, text: str) -> list[str]:
    """What today's sidecar says of a settings file, with the two keys beside it."""
    keys = json.loads((RECORDING / "left.json").read_text())["keys"]
    for name, scope in KEYS.items():
        (folder / name).write_text(keys[scope])
        (folder / name).chmod(0o600)
    path = folder / "sidecar.yaml"
    path.write_text(text)
    try:
        sidecar.read(path, {}, "host")
    except SettingsError as error:
        return [each.partition(": ")[2] for each in error.complaints]
    return []


@pytest.mark.parametrize("name", ["sidecar.yaml", "sidecar.example.yaml"])
def test_a_new_sidecar_takes_an_old_settings_file(name: str, tmp_path: Path) -> None:
    assert complaints(tmp_path, (RECORDING / name).read_text()) == []


def test_a_new_sidecar_accepts_every_key_of_the_old_settings_file(tmp_path: Path) -> None:
    """Each key of the old example is set. As in the old version, only its files are missing."""
    said = complaints(tmp_path, _COMMENTED.sub(r"\1", EXAMPLE.read_text()))
    at = {each.partition(": ")[0] for each in said}
    files = ("[0].listen_tls", "[1].tls", "[1].terminate", "[3].aws.credentials_file")
    assert at - {"control_tls"} == {f"sources{each}" for each in files}, said


def test_a_new_control_api_takes_old_settings_and_needs_no_other() -> None:
    control.read({})
    old = json.loads((RECORDING / "names.json").read_text())["settings"]
    assert set(old) <= set(control.names())
