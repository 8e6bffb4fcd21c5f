"""`sluice policy schema`: prints the JSON Schema of a kind of file, for editors."""

import argparse
from importlib.resources import files
from pathlib import Path

from deploy.commands.policy.text import AddCommand
from policies.definitions.policy_files import GUARDRAILS, TESTS

IN_POLICY_DIRECTORY = ("policy", "test", "guardrails")
"""The kinds of files in a policy directory."""
KINDS = (*IN_POLICY_DIRECTORY, "sidecar")
SUFFIX = ".schema.json"


def schema(kind: str) -> str:
    """Return the JSON Schema of a kind of file, one of `KINDS`, as JSON text."""
    return files("policies").joinpath("schemas", kind + SUFFIX).read_text(encoding="utf-8")


def kind_of(path: Path) -> str:
    """Return the kind of a file in a policy directory (`policy`, `test` or `guardrails`), judged by
    its name."""
    if path.name == GUARDRAILS:
        return "guardrails"
    return "test" if path.name.endswith(TESTS) else "policy"


def add(add_command: AddCommand) -> None:
    """Add the command `schema` and its argument."""
    command = add_command("schema", "print the JSON Schema of policy files, or of another kind")
    command.add_argument("kind", nargs="?", default=KINDS[0], choices=KINDS, help="default: policy")
    command.set_defaults(run=_schema)


def _schema(options: argparse.Namespace) -> int:
    print(schema(options.kind), end="")
    return 0
