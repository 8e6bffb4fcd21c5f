"""`sluice inject`: adds the sidecar to the pods in manifests, both bare pods and the pod templates
of workloads, or says why a pod would be refused. Needs none of the webhook's libraries.

Exit code 0 if every pod may run, 1 if one is refused, 2 if an argument or a file is unusable.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from deploy.kubernetes.admission.injection import apply, pointer, review
from deploy.kubernetes.admission.kubernetes_yaml import Unreadable, dump, load, split
from deploy.kubernetes.admission.template import Fragment, packaged, read
from deploy.kubernetes.admission.vocabulary import (
    LABEL,
    POD_SECURITY,
    Json,
    Namespace,
    Outcome,
    Verdict,
)
from policies.ground.log_line import for_a_reader
from policies.ground.settings import SettingsError

_TEMPLATE = ("spec", "template")
# API group and kind: where the pod is. Other groups have kinds of the same names, with other
# fields.
_PODS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): _TEMPLATE,
}
PodPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """A pod in a manifest, or the pod template of a Deployment, Job or other workload."""

    path: PodPath
    """The keys and indices that lead to the pod in the manifest."""
    pod: dict[str, Any]
    namespace: str
    """The namespace that the manifest states; empty if it states none."""
    title: str
    """The object's kind and name, for messages."""


def workloads(manifest: Any, path: PodPath = ()) -> Iterator[Workload]:
    """Yield the pods and pod templates in the manifest, also those in the items of a List. `path`
    leads to the manifest itself."""
    if not isinstance(manifest, dict):
        return
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    items = manifest.get("items")
    if version == "v1" and kind == "List" and isinstance(items, list):
        for place, item in enumerate(items):
            yield from workloads(item, (*path, "items", place))
        return
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    where = _PODS.get((group, kind)) if isinstance(kind, str) else None
    pod = None if where is None else _inside(manifest, where)
    # A workload without a template has no pod; the API server refuses it.
    if where is not None and isinstance(pod, dict):
        namespace = _text(manifest, "namespace")
        name = _text(manifest, "name") or _text(manifest, "generateName") or "without a name"
        yield Workload((*path, *where), pod, namespace, f"{kind}/{name}")


def namespace_labels(manifest: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the labels of each Namespace object in the manifest."""
    if not isinstance(manifest, dict) or manifest.get("apiVersion") != "v1":
        return
    items = manifest.get("items")
    if manifest.get("kind") == "List" and isinstance(items, list):
        for item in items:
            yield from namespace_labels(item)
    elif manifest.get("kind") == "Namespace":
        labels = _inside(manifest, ("metadata", "labels"))
        yield _text(manifest, "name"), labels if isinstance(labels, dict) else {}


def _inside(manifest: Json, path: tuple[str, ...]) -> Any:
    found: Any = manifest
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _text(manifest: Json, key: str) -> str:
    value = _inside(manifest, ("metadata", key))
    return value if isinstance(value, str) else ""


MAX_CHARACTERS = 16_777_216
MAX_NODES = 1_000_000
"""The most values in one manifest, counting an aliased part each time that it is used."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one pod of a manifest."""

    source: str
    """The name of the file that the pod is in."""
    title: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of `rewrite`: the text of all manifests, and a finding for each pod in them."""

    text: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Manifest:
    source: str
    text: str
    value: Any


def rewrite(sources: Mapping[str, str], fragment: Fragment, namespace: Namespace) -> Rewritten:
    """Inject the sidecar into the pods of the manifests in `sources`, which maps names to texts. A
    document without a pod, or whose pods stay as they are, keeps its text unchanged. `namespace`
    applies to manifests that state none; its labels apply to all namespaces that the sources don't
    create themselves. Raises `Unreadable`."""
    manifests = [
        _read(source, place, text)
        for source, whole in sources.items()
        for place, text in enumerate(_split(source, whole), 1)
    ]
    labels = {name: found for each in manifests for name, found in namespace_labels(each.value)}
    texts, findings = [], []
    for manifest in manifests:
        value = manifest.value
        for workload in workloads(manifest.value):
            name = workload.namespace or namespace.name
            home = Namespace(name, labels.get(name, namespace.labels))
            verdict = review(workload.pod, home, fragment)
            findings.append(Finding(manifest.source, workload.title, verdict))
            value = _patched(value, workload, verdict)
        changed = value is not manifest.value
        texts.append(dump(value) if changed else manifest.text.rstrip("\n") + "\n")
    return Rewritten("---\n".join(texts), tuple(findings))


def _split(source: str, text: str) -> list[str]:
    if len(text) > MAX_CHARACTERS:
        raise Unreadable(f"{source}: {len(text)} characters are over the limit of {MAX_CHARACTERS}")
    return split(text)


def _read(source: str, place: int, text: str) -> _Manifest:
    try:
        value = load(text)
    except Unreadable as error:
        raise Unreadable(f"{source}, document {place}: {error}") from error
    if not _bounded(value):
        raise Unreadable(f"{source}, document {place}: more than {MAX_NODES} values")
    return _Manifest(source, text, value)


def _bounded(value: Any) -> bool:
    # A few lines of aliases of aliases can stand for more values than fit into memory.
    waiting, count = [value], 0
    while waiting:
        each = waiting.pop()
        count += 1
        if count > MAX_NODES:
            return False
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return True


def _patched(value: Any, workload: Workload, verdict: Verdict) -> Any:
    base = pointer(workload.path)
    moved = [
        {key: base + part if key in ("path", "from") else part for key, part in each.items()}
        for each in verdict.patch
    ]
    return apply(value, moved)


STDIN = "-"
_DONE = {
    Outcome.injected: "injected",
    Outcome.unchanged: "has the sidecar already",
    Outcome.skipped: "left as it is",
    Outcome.refused: "refused",
}
_WOULD = {**_DONE, Outcome.injected: "would be injected", Outcome.refused: "would be refused"}


def parser() -> argparse.ArgumentParser:
    """Return the parser for the arguments of `sluice inject`."""
    made = argparse.ArgumentParser(
        prog="sluice inject",
        description="Writes the manifests with the sidecar in each pod, as the webhook would add "
        "it. Manifests without pods pass unchanged.",
        epilog="example: sluice inject -f deployment.yaml | kubectl apply -f -",
    )
    made.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="a file of manifests (YAML or JSON), or `-` for the standard input; repeat for more",
    )
    made.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="what to inject: injection.yaml, or the ConfigMap that holds it (`kubectl get "
        "configmap sluice-injection -n sluice-system -o yaml`); default: what the chart "
        "injects by default",
    )
    made.add_argument(
        "-n",
        "--namespace",
        default="default",
        metavar="NAME",
        help="the namespace of manifests that name none [default]",
    )
    made.add_argument(
        "--namespace-label",
        choices=("enabled", "optional"),
        default="enabled",
        help=f"the label `{LABEL}` of namespaces that the files don't create [enabled]",
    )
    made.add_argument(
        "--pod-security",
        choices=("privileged", "baseline", "restricted"),
        default="privileged",
        help="the Pod Security Standard that these namespaces enforce [privileged]",
    )
    made.add_argument(
        "--check",
        action="store_true",
        help="write no manifests; say of each pod whether it would be refused, and why",
    )
    return made


def run(arguments: argparse.Namespace, streams: tuple[TextIO, TextIO, TextIO]) -> int:
    """Run `sluice inject`. `streams` are the standard input, output and error to use. Returns the
    exit code."""
    stdin, stdout, stderr = streams
    labels = {LABEL: arguments.namespace_label, POD_SECURITY: arguments.pod_security}
    try:
        fragment = _fragment(arguments.settings)
        sources = _sources(arguments.filename, stdin)
        result = rewrite(sources, fragment, Namespace(arguments.namespace, labels))
    except SettingsError as error:
        print(*(f"sluice inject: {each}" for each in error.complaints), sep="\n", file=stderr)
        return 2
    except (Unreadable, OSError, UnicodeDecodeError) as error:
        print(f"sluice inject: {error}", file=stderr)
        return 2
    report = stdout if arguments.check else stderr
    for finding in result.findings:
        print(*_lines(finding, _WOULD if arguments.check else _DONE), sep="\n", file=report)
    if not result.findings:
        print("sluice inject: the manifests contain no pod", file=stderr)
    if any(each.verdict.outcome is Outcome.refused for each in result.findings):
        # Nothing is written: `| kubectl apply -f -` must not create half of it.
        return 1
    if not arguments.check:
        stdout.write(result.text)
    return 0


def _fragment(path: Path | None) -> Fragment:
    return packaged() if path is None else read(path.read_text(encoding="utf-8"), str(path))


def _sources(names: Sequence[str], stdin: TextIO) -> dict[str, str]:
    """Return the text of each file, by the file's name. A file that is named twice is read once."""
    return {
        name: stdin.read() if name == STDIN else Path(name).read_text(encoding="utf-8")
        for name in dict.fromkeys(names)
    }


def _lines(finding: Finding, words: dict[Outcome, str]) -> list[str]:
    verdict = finding.verdict
    line = f"{finding.title}: {words[verdict.outcome]}"
    if verdict.outcome is Outcome.skipped:
        line += f": {verdict.message}"
    details = [*map(str, verdict.refusals), *verdict.warnings]
    return [line, *(f"  {each}" for each in details)]


if __name__ == "__main__":
    options = parser().parse_args()
    sys.exit(for_a_reader(lambda: run(options, (sys.stdin, sys.stdout, sys.stderr)), gone=1))
