"""Chooses the folder of policy files for `sluice up`, and copies an installed Sluice's samples.
Knows nothing of what is in them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from deploy.module_command import INSTALLED, PACKAGES

PACKAGED = PACKAGES / "policies" / "definitions"


def policy_folder(environ: Mapping[str, str], data_dir: Path) -> Path:
    """Return the folder in `SLUICE_POLICY_DIR`, else the samples: those of the checkout, or a copy
    of the installed ones in the data directory."""
    if given := environ.get("SLUICE_POLICY_DIR"):
        return Path(given)
    # An upgrade replaces installed files, and their folder may be read-only: a copy can be edited.
    return copy_samples(data_dir / "policies") if INSTALLED else PACKAGED


def copy_samples(folder: Path) -> Path:
    """Copy the sample policies to `folder`, unless it exists: then someone may have edited it."""
    if not folder.exists():
        # If we die before the rename, the next start copies again.
        unfinished = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        for file in sorted(PACKAGED.rglob("*.yaml")):
            target = unfinished / file.relative_to(PACKAGED)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        unfinished.rename(folder)
    return folder
