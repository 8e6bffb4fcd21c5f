"""Objects as the chart renders them, by the real helm."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.servers import need

CHART = Path(__file__).parents[2] / "deploy/helm/sluice"
NAMESPACE = "sluice-system"


def rendered(
    *values: str, only: str | None = None, kubernetes: str = "1.36.0"
) -> list[dict[str, Any]]:
    """The manifests with these values, such as `injection.mode=transparent`; `only` names one
    template. Skips the calling test where there is no helm."""
    return [each for each in yaml.safe_load_all(_text(values, only, kubernetes)) if each]


@functools.cache
def _text(values: tuple[str, ...], only: str | None, kubernetes: str) -> str:
    command = [str(need("helm")), "template", "sluice", str(CHART), "--namespace", NAMESPACE]
    command += ["--kube-version", kubernetes]
    command += [part for value in values for part in ("--set", value)]
    command += ["--show-only", f"templates/{only}"] if only else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def one(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The only manifest of this kind."""
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found
