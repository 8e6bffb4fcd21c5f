"""The JSON Schemas that the package ships, made from what validates the files."""

from importlib.resources import files
from pathlib import Path

from policies.definitions.policy_files import GUARDRAILS, TESTS

IN_POLICY_DIRECTORY = ("policy", "test", "guardrails")
"""Kinds of files in a policy directory."""
KINDS = (*IN_POLICY_DIRECTORY, "sidecar")
SUFFIX = ".schema.json"


def schema(kind: str) -> str:
    """The text of the schema of one of `KINDS`."""
    return files("policies").joinpath("schemas", kind + SUFFIX).read_text(encoding="utf-8")


def kind_of(path: Path) -> str:
    """The kind of a file in a policy directory, by its name."""
    if path.name == GUARDRAILS:
        return "guardrails"
    return "test" if path.name.endswith(TESTS) else "policy"
