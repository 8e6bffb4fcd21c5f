"""Writes the software bill of materials (SBOM) of an image, in CycloneDX 1.6. The same image always
gives the same bytes.

It lists what is installed, not what was requested: the Python distributions in the virtual
environment, and the Debian packages in the layers. A test compares it with the image.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from deploy.images.layout import STATUS
from policies.ground.distribution import DISTRIBUTION

_NAMESPACE = uuid.UUID("9a4b6b1e-6c1d-5a43-8f0c-8d2f5b0c9d11")


def describe(image: str, venv: Path, layers: Sequence[Path]) -> str:
    """Return the bill of materials of an image as JSON."""
    libraries = next(venv.glob("lib/python3.*/site-packages"))
    installed = {normal_name(each): each for each in distributions(path=[str(libraries)])}
    version = installed[DISTRIBUTION].version
    root = Component(
        name=f"sluice-{image}", version=version, type=ComponentType.CONTAINER, bom_ref=image
    )
    made = {name: _python(each) for name, each in installed.items()}
    system = [_debian(text) for text in _records(layers)]
    epoch = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    bom = Bom(components=[*made.values(), *system])
    bom.metadata.component = root
    bom.metadata.timestamp = epoch
    bom.register_dependency(root, [made[DISTRIBUTION], *system])
    for name, distribution in installed.items():
        bom.register_dependency(made[name], [made[each] for each in _needs(distribution, made)])
    # A number drawn at random would make each build another image.
    listed = "\n".join(sorted(str(each.purl) for each in bom.components))
    bom.serial_number = uuid.uuid5(_NAMESPACE, f"{image} {epoch} {listed}")
    return JsonV1Dot6(bom).output_as_string(indent=1)


def normal_name(distribution: Distribution) -> str:
    """Return a distribution's name in the normalised form of PEP 503, as the lock and package
    indexes write it."""
    return re.sub("[-_.]+", "-", distribution.metadata["Name"]).lower()


def _python(distribution: Distribution) -> Component:
    name, metadata = normal_name(distribution), distribution.metadata
    # Newer metadata has an expression; in older, the field may hold the licence's whole text.
    words = [metadata[key] for key in ("License-Expression", "License") if key in metadata]
    licenses = [LicenseFactory().make_from_string(word) for word in words[:1] if "\n" not in word]
    purl = PackageURL("pypi", name=name, version=distribution.version)
    return Component(
        name=name,
        version=distribution.version,
        type=ComponentType.LIBRARY,
        licenses=licenses,
        purl=purl,
        bom_ref=str(purl),
    )


def _needs(distribution: Distribution, installed: Iterable[str]) -> list[str]:
    """Return those of the `installed` distributions that this one requires, with or without an
    extra."""
    asked = (Requirement(text) for text in distribution.requires or ())
    names = {re.sub("[-_.]+", "-", each.name).lower() for each in asked}
    return sorted(names.intersection(installed))


def _records(layers: Sequence[Path]) -> list[str]:
    return [
        path.read_text("utf-8")
        for layer in layers
        if (layer / STATUS).is_dir()
        for path in sorted((layer / STATUS).iterdir())
    ]


def _debian(record: str) -> Component:
    field = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", record, re.MULTILINE))
    purl = PackageURL(
        "deb",
        namespace="debian",
        name=field["Package"],
        version=field["Version"],
        qualifiers={"arch": field["Architecture"], "distro": "debian-12"},
    )
    return Component(
        name=field["Package"],
        version=field["Version"],
        type=ComponentType.LIBRARY,
        description=field.get("Description"),
        purl=purl,
        bom_ref=str(purl),
    )
