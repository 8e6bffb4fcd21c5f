"""Writes policy directories, and reads their faults."""

import textwrap
from pathlib import Path

import pytest

from policies.definitions.definition import LoadError
from policies.definitions.load import load_tenant

ENTRY = """\
name: reads
agent_role: analyst
allowed_sources: [contracts]
denied_sources: []
max_sensitivity: high
"""


def write(root: Path, text: str | bytes, at: str = "default/lending/loans.yaml") -> Path:
    path = root / at
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(textwrap.dedent(text).encode() if isinstance(text, str) else text)
    return path


def of(*entries: str) -> str:
    """A file of entries, each a block of lines."""
    items = (textwrap.indent(textwrap.dedent(entry), "    ").strip() for entry in entries)
    return "policies:\n" + "".join(f"  - {item}\n" for item in items)


def faults(root: Path, tenant: str = "default") -> list[str]:
    with pytest.raises(LoadError) as raised:
        load_tenant(root, tenant)
    assert str(raised.value) == "\n".join(map(str, raised.value.faults))
    return [str(fault) for fault in raised.value.faults]


def complaint(root: Path, text: str | bytes) -> str:
    """The one fault of a tenant with this one file, without the file's name."""
    write(root, text)
    (only,) = faults(root)
    assert only.startswith("default/lending/loans.yaml")
    return only.removeprefix("default/lending/loans.yaml").removeprefix(":")
