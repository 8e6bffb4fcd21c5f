"""Renders the chart with the real `helm`, and finds things in what comes out."""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import servers

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm" / "sluice"
DEV = CHART / "values-dev.yaml"
NAMESPACE = "sluice-system"
# The oldest Kubernetes with native sidecars on by default, and the newest that is tested.
OLDEST, NEWEST = "1.29", "1.36"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

Values = dict[str, Any]
Manifest = dict[str, Any]

ENGINES = ("webhook", "policy")
MODES = ("explicit", "transparent")
CERTIFICATES = ("self", "cert-manager", "secret")
IDENTITIES = ("workload", "secret")
SIZES = ("production", "dev")


class Choice(NamedTuple):
    """What an operator chooses; each combination of these must render."""

    engine: str = "webhook"
    mode: str = "explicit"
    certificates: str = "self"
    identity: str = "workload"
    size: str = "production"

    @property
    def values(self) -> Values:
        needed: Values = {}
        if self.certificates == "cert-manager":
            needed["certManager"] = {"issuerName": "internal"}
        if self.certificates == "secret":
            needed["webhook"] = {"caBundle": CERTIFICATE}
        return {
            "injection": {"engine": self.engine, "mode": self.mode},
            "certificates": self.certificates,
            "identity": self.identity,
            **needed,
        }

    @property
    def manifests(self) -> list[Manifest]:
        """As rendered for the oldest Kubernetes that has what was chosen."""
        return self.on(NEWEST if self.engine == "policy" else OLDEST)

    def on(self, version: str) -> list[Manifest]:
        """As rendered for this version of Kubernetes."""
        files = (DEV,) if self.size == "dev" else ()
        return rendered(self.values, *files, version=version)


CHOICES = [
    Choice(*each) for each in itertools.product(ENGINES, MODES, CERTIFICATES, IDENTITIES, SIZES)
]


class Refused(Exception):
    """helm refuses the values; the message is its own"""


def helm(*arguments: str, values: Values | None = None) -> str:
    """The output of a `helm` command. `values` are given as a file."""
    done = subprocess.run(
        [str(servers.need("helm")), *arguments, *([] if values is None else ["--values", "-"])],
        input=None if values is None else json.dumps(values),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def template(
    values: Values, *files: Path, version: str = NEWEST, options: tuple[str, ...] = ()
) -> str:
    """The text that `helm template` renders."""
    given = itertools.chain.from_iterable(("--values", str(each)) for each in files)
    return _template(json.dumps(values, sort_keys=True), tuple(given), version, options)


@functools.cache
def _template(values: str, files: tuple[str, ...], version: str, options: tuple[str, ...]) -> str:
    fixed = ("template", "sluice", str(CHART), "--namespace", NAMESPACE, "--kube-version", version)
    return helm(*fixed, *files, *options, values=json.loads(values))


def rendered(values: Values, *files: Path, version: str = NEWEST) -> list[Manifest]:
    """The objects, which tests share: don't change them."""
    return _parsed(template(values, *files, version=version))


@functools.cache
def _parsed(text: str) -> list[Manifest]:
    # The loader written in C: it is ten times as fast.
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """The one object of this kind and name."""
    [found] = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """The name and the spec of every pod that the chart's own objects make."""
    for each in manifests:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]
        elif each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
