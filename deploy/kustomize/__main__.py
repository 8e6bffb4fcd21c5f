"""Renders the kustomize bases from the Helm chart: `python -m deploy.kustomize [--check]`.

    base    the chart's defaults: production with PostgreSQL
    dev     with `values-dev.yaml`: one replica with SQLite

Run it after every change of the chart; a test compares. Needs `helm` on the PATH.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE.parent / "helm" / "sluice"
FILE = "sluice.yaml"
NAMESPACE = "sluice-system"
# The oldest Kubernetes with stable admission policies: what it accepts, later ones do too.
KUBERNETES = "1.30"
BASES: dict[str, tuple[Path, ...]] = {"base": (), "dev": (CHART / "values-dev.yaml",)}
_HEAD = "# Rendered from deploy/helm/sluice by `python -m deploy.kustomize`. Don't edit it here.\n"


def rendered(base: str, helm: str = "helm") -> str:
    """Return the Kubernetes manifests of a base as YAML. Raises `CalledProcessError` if the chart
    does not render."""
    values = [f"--values={path}" for path in BASES[base]]
    command = [helm, "template", "sluice", str(CHART), f"--namespace={NAMESPACE}", "--no-hooks"]
    # Without hooks the jobs are plain objects: kustomize knows no order of a roll-out.
    command += [f"--kube-version={KUBERNETES}", "--set=jobs.hooks=false", *values]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # The label names what owns the object, and there is no release of Helm here.
    return _HEAD + done.stdout.replace("managed-by: Helm", "managed-by: kustomize")


def main(arguments: list[str]) -> int:
    """Write the manifests of all bases. With `--check`, only compare them, and return 1 if a file
    differs from what the chart renders."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kustomize", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--helm", default="helm", help="the program (default: from the PATH)")
    given = parser.parse_args(arguments)
    differing = []
    for base in BASES:
        path = HERE / base / FILE
        text = rendered(base, given.helm)
        if given.check and path.read_text() != text:
            differing.append(str(path))
        elif not given.check:
            path.write_text(text)
    for path_of_base in differing:
        print(f"{path_of_base} is not what the chart renders: run `python -m deploy.kustomize`")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
