"""Loads a tenant's guardrails from `<dir>/<tenant_id>/guardrails.yaml`, and with them everything
else that its files put in force. Knows no store."""

from pathlib import Path
from typing import NamedTuple

from policies.definitions.definition import (
    Definition,
    DefinitionFault,
    DefinitionFaults,
    LoadError,
    in_order,
)
from policies.definitions.guardrail_form import (
    GUARDRAIL_FILE,
    DefinedGuardrail,
    refuse_duplicates,
)
from policies.definitions.load import load_tenant, parse_tree, read_text
from policies.definitions.policy_files import guardrail_file


class TenantDefinitions(NamedTuple):
    """Everything that a tenant's files put in force."""

    policies: list[Definition]
    guardrails: list[DefinedGuardrail]


def load_definitions(root: Path, tenant_id: str) -> TenantDefinitions:
    """The policies and guardrails in a tenant's files; both are empty if it has no folder.

    Raises `LoadError` with every fault of every file: one rejects all of the tenant's files.
    """
    faults: list[DefinitionFault] = []
    policies: list[Definition] = []
    guardrails: list[DefinedGuardrail] = []
    try:
        policies = load_tenant(root, tenant_id)
    except LoadError as error:
        faults += error.faults
    try:
        guardrails = load_guardrails(root, tenant_id)
    except LoadError as error:
        faults += error.faults
    if faults:
        raise LoadError(in_order(dict.fromkeys(faults)))
    return TenantDefinitions(policies, guardrails)


def load_guardrails(root: Path, tenant_id: str) -> list[DefinedGuardrail]:
    """The guardrails of a tenant's file, in its order; empty if it has none. Raises `LoadError`
    with all its faults."""
    path = guardrail_file(root, tenant_id)
    return [] if path is None else load_guardrail_file(path, str(path.relative_to(root)))


def load_guardrail_file(path: Path, file: str | None = None) -> list[DefinedGuardrail]:
    """The guardrails in one file, wherever it is; `file` is its name in faults. Raises `LoadError`
    with all its faults."""
    faults = DefinitionFaults(str(path) if file is None else file)
    found: list[DefinedGuardrail] = []
    try:
        text = read_text(path, faults)
        tree = None if text is None else parse_tree(text, faults, "guardrails")
        read = None if tree is None else GUARDRAIL_FILE.read("", tree, faults)
        found = [each for each in (read or {}).get("guardrails") or () if each is not None]
        refuse_duplicates(found, faults)
    except DefinitionFaults.TooManyFaults:
        pass  # `faults` keeps what was found, and its last entry says that there are more
    if faults.found:
        raise LoadError(in_order(faults.found))
    return found
