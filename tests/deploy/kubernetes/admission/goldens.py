"""The golden files of injection: manifests in, and what becomes of them. Finds them, and knows how
a case is run; the tests compare.

Beside `NAME.input.yaml` is one of `NAME.output.yaml`, `NAME.refused.txt` and `NAME.skipped.txt`.
The input's first lines are comments `# key: value`: `why` says what it shows, `settings` names the
fragment in `settings/`, and the others are options of `sluice inject`. In the input, `"@NAME"`
stands for our container or volume of that name, as the API server stores it, and `"@ordinary"` for
the sidecar as an ordinary container; `{"@": NAME, key: value}` for one with another value, and
`key+` for a list with more items.

    python -m tests.deploy.kubernetes.admission.goldens

renders the fragments from the chart and writes all expected files anew. Read the difference.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from deploy.kubernetes.admission import manifests, template
from deploy.kubernetes.admission.injection import status
from deploy.kubernetes.admission.kubernetes_yaml import dump, load, split
from deploy.kubernetes.admission.manifests import Finding, rewrite
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import LABEL, POD_SECURITY, Namespace
from policies import __version__
from tests.servers import find

FOLDER = Path(__file__).with_name("golden")
CHART = Path(__file__).resolve().parents[4] / "deploy/helm/sluice"
KINDS = ("output.yaml", "refused.txt", "skipped.txt")
VALUES: dict[str, tuple[str, ...]] = {
    "explicit": (),
    "transparent": ("injection.mode=transparent",),
    "transparent-options": (
        "injection.mode=transparent",
        "injection.options={log-level,skip-outbound-ports,skip-subnets}",
    ),
    "ordinary": ("injection.options={native-sidecar}", "injection.quitEndpoint=true"),
    "ordinary-transparent": (
        "injection.mode=transparent",
        "injection.options={log-level,native-sidecar}",
    ),
}
"""The fragments, by what they set in the chart's values."""
_VERSION = f'"version":"{__version__}"'
_HEADER = re.compile(r"^# ([a-z-]+): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One pair of golden files."""

    name: str

    @property
    def written(self) -> str:
        return (FOLDER / f"{self.name}.input.yaml").read_text(encoding="utf-8")

    @property
    def header(self) -> dict[str, str]:
        return dict(_HEADER.findall(self.written.partition("\n\n")[0]))

    @property
    def fragment(self) -> Fragment:
        return fragment(self.settings.stem)

    @property
    def settings(self) -> Path:
        return FOLDER / "settings" / f"{self.header.get('settings', 'explicit')}.yaml"

    @property
    def namespace(self) -> Namespace:
        labels = {
            LABEL: self.header.get("namespace-label", "enabled"),
            POD_SECURITY: self.header.get("pod-security", "privileged"),
        }
        return Namespace("default", labels)

    @cached_property
    def input(self) -> str:
        """The manifests, with our containers and volumes in place of their names."""
        expanded = []
        for text in split(self.written):
            value = load(text)
            full = _expanded(value, self.fragment)
            expanded.append(text if full == value else dump(full))
        return "---\n".join(expanded)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """By the pure function."""
        return rewrite({"input": self.input}, self.fragment, self.namespace).findings

    def expected(self) -> tuple[str, str]:
        """The kind of the expected file, and what it holds."""
        (path,) = [each for kind in KINDS if (each := FOLDER / f"{self.name}.{kind}").exists()]
        return path.name.removeprefix(f"{self.name}."), path.read_text(encoding="utf-8")

    def command(self) -> tuple[str, str]:
        """The same by the command, with whatever differs from release to release replaced."""
        options = [
            part
            for key in ("namespace-label", "pod-security")
            if key in self.header
            for part in (f"--{key}", self.header[key])
        ]
        asked = ["-f", "-", "--settings", str(self.settings), *options]
        code, output, report = run(asked, self.input)
        if code == 1:
            return "refused.txt", report
        assert code == 0, report
        outcomes = {each.verdict.outcome.value for each in self.findings}
        if outcomes == {"skipped"}:
            assert output == self.input
            return "skipped.txt", report
        return "output.yaml", output.replace(_VERSION, '"version":"golden"')


def run(arguments: list[str], stdin: str = "") -> tuple[int, str, str]:
    """`sluice inject` in this process: its exit code, output and report."""
    output, report = io.StringIO(), io.StringIO()
    asked = manifests.parser().parse_args(arguments)
    code = manifests.run(asked, (io.StringIO(stdin), output, report))
    return code, output.getvalue(), report.getvalue()


def cases() -> list[Case]:
    """All, by name."""
    return [
        Case(path.name.removesuffix(".input.yaml")) for path in sorted(FOLDER.glob("*.input.yaml"))
    ]


@cache
def fragment(name: str) -> Fragment:
    path = FOLDER / "settings" / f"{name}.yaml"
    return template.read(path.read_text(encoding="utf-8"), name, "golden")


def _expanded(value: Any, ours: Fragment) -> Any:
    if isinstance(value, str) and value.startswith("@"):
        return _ours(value[1:], ours)
    if isinstance(value, list):
        return [_expanded(each, ours) for each in value]
    if not isinstance(value, dict):
        return value
    if "@" not in value:
        return {key: _expanded(each, ours) for key, each in value.items()}
    part = _ours(value["@"], ours)
    for key, each in value.items():
        if key.endswith("+"):
            part[key[:-1]] = [*part.get(key[:-1], []), *each]
        elif key != "@":
            part[key] = each
        if each is None:
            del part[key]
    return part


def _ours(name: str, ours: Fragment) -> Any:
    filled = ours.for_account("default")
    if name == "environment":
        return deepcopy(list(filled.environment))
    if name == "status":
        return status(ours).replace("golden", __version__)
    parts = {each["name"]: dict(each) for each in (*filled.init_containers, *filled.volumes)}
    for each in ours.for_account("default", native=False).containers:
        parts["ordinary"] = dict(each)
    return server_defaults(deepcopy(parts[name]))


def server_defaults(part: dict[str, Any]) -> dict[str, Any]:
    """Our container or volume with what the API server (pkg/apis/core/v1/defaults.go) fills in."""
    if "image" in part:
        part = {"terminationMessagePath": "/dev/termination-log", **part}
        for name in ("startupProbe", "readinessProbe"):
            if name in part:
                probe = {"timeoutSeconds": 1, "successThreshold": 1, **part[name]}
                probe["httpGet"] = {"scheme": "HTTP", **probe["httpGet"]}
                part[name] = probe
        for variable in part.get("env", []):
            if "valueFrom" in variable:
                variable["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    for source in ("configMap", "secret", "projected"):
        if source in part:
            part[source] = {**part[source], "defaultMode": 420}
    return part


@cache
def rendered(name: str, *more: str) -> str:
    """The fragment as the chart renders it."""
    helm = find("helm")
    assert helm is not None
    sets = [part for each in (*VALUES[name], *more) for part in ("--set", each)]
    shown = "templates/injection-configmap.yaml"
    asked = [
        str(helm),
        "template",
        "sluice",
        str(CHART),
        "--namespace",
        "sluice-system",
        "-s",
        shown,
        *sets,
    ]
    manifest = load(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    text = manifest["data"][template.KEY]
    assert isinstance(text, str)
    return text


TAG = "images.sidecar.tag=golden"
"""So that a release does not change the golden files."""


def main() -> int:
    """Write everything that is derived."""
    template.PACKAGED.write_text(rendered("explicit"), encoding="utf-8")
    for name in VALUES:
        path = FOLDER / "settings" / f"{name}.yaml"
        path.write_text(rendered(name, TAG), encoding="utf-8")
    for kind in KINDS:
        for path in FOLDER.glob(f"*.{kind}"):
            path.unlink()
    for case in cases():
        kind, text = case.command()
        (FOLDER / f"{case.name}.{kind}").write_text(text, encoding="utf-8")
    print(f"{len(cases())} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
