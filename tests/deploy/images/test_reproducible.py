"""Builds the sidecar's image twice, without a cache, and compares all digests.

It takes minutes and fetches from the registries, so it runs only on demand: `SLUICE_IMAGE_BASE` is
the base by digest, and `SLUICE_IMAGE_OPTIONS` more options of `python -m deploy.images`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import Any

import pytest

from deploy.images.__main__ import main
from policies import __version__
from tests.servers import need

BASE = os.environ.get("SLUICE_IMAGE_BASE")
OPTIONS = shlex.split(os.environ.get("SLUICE_IMAGE_OPTIONS", ""))


@pytest.mark.skipif(BASE is None, reason="SLUICE_IMAGE_BASE names no base to build from")
def test_the_same_input_gives_the_same_image() -> None:
    need("buildah")
    first, second = (_build(f"localhost/sluice-test-{number}") for number in (1, 2))
    assert first["layers"] == second["layers"]
    assert len(first["layers"]) == 3
    assert first["config"] == second["config"]


def _build(name: str) -> dict[str, Any]:
    arguments = ["--base", str(BASE), "--tool", "buildah", "--target", "sidecar", "--name", name]
    assert main([*arguments, *OPTIONS, "--no-cache"]) == 0
    image = f"{name}/sidecar:{__version__}"
    command = [str(need("buildah")), "inspect", "--type", "image", image]
    found = json.loads(subprocess.check_output(command))
    subprocess.run([command[0], "rmi", image], check=True, stdout=subprocess.DEVNULL)
    # The configuration's digest covers the layers, the labels and all times.
    return {"layers": found["OCIv1"]["rootfs"]["diff_ids"], "config": found["FromImageID"]}
