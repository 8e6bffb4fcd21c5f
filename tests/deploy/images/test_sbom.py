"""The bill of materials: valid CycloneDX, complete, and the same bytes for the same input."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.images import sbom
from deploy.images.layout import STATUS
from tests.deploy.images.containers import ROOT

DESCRIBE = """
import sys
from pathlib import Path
from deploy.images import sbom
sys.stdout.write(sbom.describe("sidecar", Path(sys.argv[1]), [Path(sys.argv[2])]))
"""
RECORD = """\
Package: libc6
Architecture: amd64
Version: 2.36-9+deb12u14
Description: GNU C Library: Shared libraries
 Contains the standard libraries.
"""


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bill of the tests' own virtual environment and one package, written by two processes."""
    layer = tmp_path_factory.mktemp("layer")
    (layer / STATUS).mkdir(parents=True)
    (layer / STATUS / "libc6").write_text(RECORD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        text = sbom.describe("sidecar", Path(sys.prefix), [layer])
        # Another process hashes its texts differently, so that it visits sets in another order.
        again = subprocess.run(
            [sys.executable, "-c", DESCRIBE, sys.prefix, layer],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert again.stdout == text
    return text


def test_a_bill_is_valid(bill: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None


def test_a_bill_lists_every_distribution_and_package(bill: str) -> None:
    parsed = json.loads(bill)
    assert parsed["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    listed = {each["purl"].partition("@")[0] for each in parsed["components"]}
    site = next(Path(sys.prefix).glob("lib/python3.*/site-packages"))
    installed = {sbom.normal_name(each) for each in distributions(path=[str(site)])}
    assert listed == {f"pkg:pypi/{name}" for name in installed} | {"pkg:deb/debian/libc6"}


def test_a_bill_of_materials_lists_all_dependencies(bill: str) -> None:
    needs = {each["ref"]: each.get("dependsOn", []) for each in json.loads(bill)["dependencies"]}
    assert any("deb/debian/libc6" in each for each in needs["sidecar"])
    aiohttp = next(ref for ref in needs if ref.startswith("pkg:pypi/aiohttp@"))
    assert any(each.startswith("pkg:pypi/yarl@") for each in needs[aiohttp])
