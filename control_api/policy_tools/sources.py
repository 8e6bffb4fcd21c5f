"""Where the policies of a question come from: a directory of policy files, one file, or a
revision in git. Knows files; `git_tree` knows git, and `policies.definitions.load` what files
hold."""

from pathlib import Path
from typing import Any

from control_api.policy_tools.git_tree import GitFailed, checked_out
from policies.definitions.definition import Definition, LoadError
from policies.definitions.load import load_file, load_tenant
from policies.definitions.model import Policy
from policies.definitions.policy_files import strays, tenants

GIT = "git:"


class Unusable(Exception):
    """policies that can't be read; the message says why, with file and line where there is one"""


def read(source: str, tenant: str | None, other: str | None = None) -> list[Policy]:
    """The policies that `source` names: a directory or a file, or `git:REV[:PATH]`, where the path
    defaults to that of the `other` side. Raises `Unusable`."""
    if not source.startswith(GIT):
        return _read(Path(source), tenant)
    revision, _, path = source.removeprefix(GIT).partition(":")
    path = path or (other or "")
    if not revision or not path or path.startswith(GIT):
        raise Unusable(f"`{source}`: say which path: {GIT}REV:PATH")
    try:
        with checked_out(revision, Path(path)) as found:
            return _read(found, tenant)
    except GitFailed as error:
        raise Unusable(str(error)) from error


def _read(path: Path, tenant: str | None) -> list[Policy]:
    if not path.exists():
        raise Unusable(f"`{path}` does not exist")
    try:
        definitions = load_file(path) if path.is_file() else _load(path, tenant)
    except LoadError as error:
        raise Unusable(str(error)) from error
    return [_policy(each) for each in definitions]


def _load(root: Path, tenant: str | None) -> list[Definition]:
    if faults := strays(root):
        raise LoadError(faults)
    found = tenants(root)
    if tenant is None:
        if len(found) != 1:
            listed = ", ".join(f"`{each}`" for each in found) or "none"
            raise Unusable(f"`{root}` holds several tenants or none ({listed}): name one, --tenant")
        tenant = found[0]
    return load_tenant(root, tenant)


def _policy(definition: Definition) -> Policy:
    # The store gives ids and versions; a question about what is allowed needs neither.
    return Policy.from_wire({**definition.body, "policy_id": "", "version": 0})


def body(policy: Policy) -> dict[str, Any]:
    """A policy as a service is told of it, which gives the id and the version."""
    wire = policy.to_wire()
    return {name: wire[name] for name in wire if name not in ("policy_id", "version")}
