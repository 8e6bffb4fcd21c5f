"""Gives the pods in manifests the sidecar, by the same function as the webhook. Knows texts and
verdicts; opens no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from control_api.admission.injection.inject import review
from control_api.admission.injection.patch import apply, pointer
from control_api.admission.manifests.workloads import Workload, namespace_labels, workloads
from control_api.admission.notation.kubernetes_yaml import Unreadable, dump, load, split
from control_api.admission.template import Fragment
from control_api.admission.verdict import Verdict
from control_api.admission.vocabulary import Namespace

MAX_CHARACTERS = 16_777_216
MAX_NODES = 1_000_000
"""Values in one manifest, with aliases written out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one pod."""

    source: str
    """The file."""
    title: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rewritten:
    """All manifests, with a finding for each pod in them."""

    text: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Manifest:
    source: str
    text: str
    value: Any


def rewrite(sources: Mapping[str, str], fragment: Fragment, namespace: Namespace) -> Rewritten:
    """The manifests in `sources` (names to texts) with their pods injected. What has no pod, or one
    that stays as it is, keeps its text to the letter. `namespace` is that of manifests without one,
    and its labels count for every namespace that the sources don't create themselves. Raises
    `Unreadable`."""
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
