"""The JSON Schemas that the package ships, made from what validates the files."""

from importlib.resources import files
from pathlib import Path

KINDS = ("policy", "guardrails")
IN_POLICY_DIRECTORY = ("policy", "guardrails")
"""Those of the files in a policy directory."""
SUFFIX = ".schema.json"


def schema(kind: str) -> str:
    """The text of the schema of one of `KINDS`."""
    return files("policies").joinpath("schemas", kind + SUFFIX).read_text(encoding="utf-8")


def kind_of(path: Path) -> str:
    """The kind of a file in a policy directory, by its name."""
    return "guardrails" if path.name == "guardrails.yaml" else "policy"
