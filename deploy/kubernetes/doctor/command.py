"""`sluice doctor --cluster`: reads the cluster once, runs the checks and prints the findings.

Exit code 0 without findings, 1 with findings, 2 for unusable arguments, or a cluster or file that
can't be read.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from deploy.kubernetes.doctor.checks import examine
from deploy.kubernetes.doctor.collect import CollectError, from_file, from_kubectl, registered
from deploy.kubernetes.doctor.output import as_json, as_text


def main(words: list[str]) -> int:
    """Run the command with the arguments after `sluice doctor`."""
    arguments = _parser().parse_args(words)
    try:
        cluster = (
            from_kubectl(arguments.context)
            if arguments.source is None
            else from_file(arguments.source)
        )
        if arguments.agents is not None:
            cluster = replace(cluster, registered=registered(arguments.agents))
    except CollectError as error:
        print(f"sluice doctor: {error}", file=sys.stderr)
        return 2
    findings = examine(cluster)
    print((as_json if arguments.json else as_text)(findings))
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice doctor --cluster",
        description="Finds what could pass the governed namespaces of a Kubernetes cluster by. "
        "Reads with kubectl, changes nothing, and reads no Secret.",
    )
    parser.add_argument("--cluster", action="store_true", required=True, help="check a cluster")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--context", help="the context of kubectl's configuration")
    source.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="read the objects from a file: what `kubectl get … -o json` printed",
    )
    parser.add_argument(
        "--agents",
        type=Path,
        metavar="FILE",
        help="the output of `sluice agents list --all --json`, to find registered agents that run "
        "in ungoverned namespaces",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser
