"""`sluice policy lint`: errors and likely mistakes in a directory of policies or in one file."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deploy.commands.policy.text import AddCommand
from policies.definitions.definition import Definition, DefinitionFault, LoadError
from policies.definitions.load import load_definitions, load_file
from policies.definitions.policy_files import (
    DEFAULT,
    UnownedFolder,
    strays,
    tenants,
    unlikely,
    unowned,
)
from policies.ground.output import plural
from policies.lint import lint


def add(add_command: AddCommand) -> None:
    """Add the command `lint`. Exit codes: 0 if the files can be used, 1 if not."""
    command = add_command("lint", "report errors and likely mistakes in policy files")
    command.add_argument("path", metavar="PATH", type=Path)
    command.add_argument(
        "--tenant",
        metavar="ID",
        action="append",
        default=[],
        help="a tenant of this installation (repeatable); other tenants' folders cause a warning",
    )
    command.epilog = "PATH: a directory <tenant_id>/<industry>/<process_group>.yaml, or one file"
    command.set_defaults(run=partial(_lint, command))


def _lint(command: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    path: Path = options.path
    if not path.exists():
        command.error(f"`{path}` does not exist")
    definitions, faults = (
        _load_directory(path) if path.is_dir() else _load(partial(load_file, path))
    )
    folders = tenants(path) if path.is_dir() else []
    # Warnings never fail the command: the policies are in force as they are written.
    warnings = [*_unowned(folders, options.tenant), *lint(definitions)]
    for fault in faults:
        print(f"error: {fault}")
    for warning in warnings:
        print(f"warning: {warning}")
    # On standard error, so that standard output holds the findings alone, one a line.
    print(
        f"{plural(len(definitions), 'policy')}, {plural(len(faults), 'error')}, "
        f"{plural(len(warnings), 'warning')}",
        file=sys.stderr,
    )
    return 1 if faults else 0


def _load_directory(root: Path) -> tuple[list[Definition], list[DefinitionFault]]:
    definitions: list[Definition] = []
    # One tenant's faults don't hide another's: a control API loads each tenant by itself.
    faults = strays(root)
    for tenant_id in tenants(root):
        found, wrong = _load(partial(_policies, root, tenant_id))
        definitions += found
        faults += wrong
    return definitions, faults


def _policies(root: Path, tenant_id: str) -> list[Definition]:
    return load_definitions(root, tenant_id).policies  # refused for a fault in its guardrails too


def _unowned(folders: list[str], known: list[str]) -> list[UnownedFolder]:
    """Folders that belong to no tenant. Without a list of tenants, the form of the name decides."""
    if not known:
        return unlikely(folders)
    return unowned(folders, {each: each for each in (DEFAULT, *known)})


def _load(load: Callable[[], list[Definition]]) -> tuple[list[Definition], list[DefinitionFault]]:
    try:
        return load(), []
    except LoadError as error:
        return [], error.faults
