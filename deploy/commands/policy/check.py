"""`sluice policy lint` reports errors and likely mistakes in a directory or in one file. `sluice
policy check` tells whether the guardrails hold, with an example of a request for each that does
not."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from deploy.commands.policy import text
from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand, add_output
from policies.analysis.access import body, decided
from policies.analysis.difference import by_role
from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import TooManyClasses
from policies.definitions.definition import Definition, DefinitionFault, LoadError
from policies.definitions.load import TenantDefinitions, load_definitions, load_file
from policies.definitions.model import Policy
from policies.definitions.policy_files import (
    DEFAULT,
    UnownedFolder,
    strays,
    tenants,
    unlikely,
    unowned,
)
from policies.ground.log_line import plural
from policies.lint import lint
from policies.sets.role import compile_role


def add_check(add_command: AddCommand) -> None:
    """Add the command `check`. Its exit codes: 0 if every guardrail holds, 1 if one does not, 2 if
    a file can't be used."""
    command = add_command(
        "check", "whether the guardrails hold for every request that there may be"
    )
    command.add_argument("path", metavar="DIR", nargs="?", default=".", type=Path)
    command.epilog = (
        "DIR: a directory <tenant_id>/<industry>/<process_group>.yaml with <tenant_id>/"
        "guardrails.yaml; by default the current one"
    )
    add_output(command)
    command.set_defaults(run=_run_check)


def _run_check(options: argparse.Namespace) -> int:
    loaded = _load_tenants(options.path, options.tenant)
    broken = [each for tenant, found in loaded.items() for each in _broken(tenant, found)]
    number = sum(len(found.guardrails) for found in loaded.values())
    if options.json:
        print(json.dumps({"guardrails": number, "broken": broken}))
        return 1 if broken else 0
    for each in broken:
        text.show("", text.broken(each))
    print(f"{number} guardrails, {len(broken)} broken", file=sys.stderr)
    return 1 if broken else 0


def _load_tenants(root: Path, tenant: str | None) -> dict[str, TenantDefinitions]:
    """Load the policies and guardrails of each tenant, or of `tenant` alone, by tenant id. Raises
    `Unusable`, which lists the faults in all tenants' files."""
    if not root.is_dir():
        raise Unusable(f"`{root}` is not a directory")
    try:
        faults, known = strays(root), tenants(root)
    except LoadError as error:
        raise Unusable(str(error)) from error
    if tenant is not None and tenant not in known:
        raise Unusable(f"`{root}` holds no tenant `{tenant}`")
    found = {}
    for each in known if tenant is None else [tenant]:
        try:
            found[each] = load_definitions(root, each)
        except LoadError as error:
            faults += error.faults
    if faults:
        raise Unusable("\n".join(map(str, faults)))
    return found


def _broken(tenant: str, found: TenantDefinitions) -> Iterator[dict[str, Any]]:
    roles = by_role(
        # The store gives ids and versions; what is allowed needs neither.
        Policy.from_wire({**each.body, "policy_id": "", "version": 0})
        for each in found.policies
    )
    guarded = GuardedRoles(roles, every=True)
    for file, line, guardrail in found.guardrails:
        try:
            request = guarded.counterexample(guardrail)
        except TooManyClasses as error:
            raise Unusable(f"{file}:{line}: can't be checked: {error}") from error
        if request is not None:
            role = request.agent_role
            yield {
                "tenant": tenant,
                "guardrail": guardrail.name,
                "file": file,
                "line": line,
                "counterexample": body(request),
                # By the core itself: what an evaluation says where checks 1 to 5 pass.
                **decided(request, compile_role(role, roles[role]) if role in roles else None),
            }


def add_lint(add_command: AddCommand) -> None:
    """Add the command `lint`. Its exit codes: 0 if the files can be used, 1 if not."""
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
        _load_directory(path) if path.is_dir() else _load_or_report(partial(load_file, path))
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
        found, wrong = _load_or_report(partial(_policies, root, tenant_id))
        definitions += found
        faults += wrong
    return definitions, faults


def _policies(root: Path, tenant_id: str) -> list[Definition]:
    return load_definitions(root, tenant_id).policies  # refused for a fault in its guardrails too


def _unowned(folders: list[str], known: list[str]) -> list[UnownedFolder]:
    """Return the folders that belong to no tenant in `known`. If `known` is empty, return those
    whose name does not have the form of a tenant's id."""
    if not known:
        return unlikely(folders)
    return unowned(folders, {each: each for each in (DEFAULT, *known)})


def _load_or_report(
    load: Callable[[], list[Definition]],
) -> tuple[list[Definition], list[DefinitionFault]]:
    try:
        return load(), []
    except LoadError as error:
        return [], error.faults
