"""`sluice inject`: writes manifests with the sidecar in their pods, or says why a pod would be
refused. Reads files and writes to the streams; what it does to them is in `manifests`.

Exit code 0 if every pod may run, 1 if one is refused, 2 if an argument or a file is unusable.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from deploy.kubernetes.admission.manifests.rewrite import Finding, rewrite
from deploy.kubernetes.admission.notation.kubernetes_yaml import Unreadable
from deploy.kubernetes.admission.template import Fragment, packaged, read
from deploy.kubernetes.admission.verdict import Outcome
from deploy.kubernetes.admission.vocabulary import LABEL, POD_SECURITY, Namespace
from policies.ground.settings import SettingsError

STDIN = "-"
_DONE = {
    Outcome.injected: "injected",
    Outcome.unchanged: "has the sidecar already",
    Outcome.skipped: "left as it is",
    Outcome.refused: "refused",
}
_WOULD = {**_DONE, Outcome.injected: "would be injected", Outcome.refused: "would be refused"}


def parser() -> argparse.ArgumentParser:
    """The arguments of `sluice inject`."""
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
    """Run the command with the given standard input, output and error. Returns the exit code."""
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
    """The texts by file name; a file that is named twice is read once."""
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
