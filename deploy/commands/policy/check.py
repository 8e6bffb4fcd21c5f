"""`sluice policy check`: whether the guardrails hold, and a request that shows where not."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.commands.policy import text
from deploy.commands.policy.sources import Unusable
from deploy.commands.policy.text import AddCommand, add_output
from policies.analysis.access import body, decided
from policies.analysis.difference import by_role
from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import TooManyClasses
from policies.definitions.definition import LoadError
from policies.definitions.load import TenantDefinitions, load_definitions
from policies.definitions.model import Policy
from policies.definitions.policy_files import strays, tenants
from policies.sets.role import compile_role


def add(add_command: AddCommand) -> None:
    """Add the command `check`. Exit codes: 0 if every guardrail holds, 1 if not, 2 if a file can't
    be used."""
    command = add_command(
        "check", "whether the guardrails hold for every request that there may be"
    )
    command.add_argument("path", metavar="DIR", nargs="?", default=".", type=Path)
    command.epilog = (
        "DIR: a directory <tenant_id>/<industry>/<process_group>.yaml with <tenant_id>/"
        "guardrails.yaml; by default the current one"
    )
    add_output(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    loaded = _load(options.path, options.tenant)
    broken = [each for tenant, found in loaded.items() for each in _broken(tenant, found)]
    number = sum(len(found.guardrails) for found in loaded.values())
    if options.json:
        print(json.dumps({"guardrails": number, "broken": broken}))
        return 1 if broken else 0
    for each in broken:
        text.show("", text.broken(each))
    print(f"{number} guardrails, {len(broken)} broken", file=sys.stderr)
    return 1 if broken else 0


def _load(root: Path, tenant: str | None) -> dict[str, TenantDefinitions]:
    """What each tenant's files define. Raises `Unusable` with all faults of all tenants."""
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
