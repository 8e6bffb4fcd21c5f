"""What a path of `sluice policy test` holds: tenants, their policies, and their tests.

    read(path)        a tree of tenants, a tenant's folder or a part of it, or one file of tests
    watched(path)     the folder whose files its answer depends on

Knows folders. Which files are policies and which are tests, `policies.definitions` says.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from deploy.commands.policy.sources import Unusable
from policies.definitions.definition import (
    Definition,
    DefinitionFault,
    DefinitionFaults,
    LoadError,
    in_order,
)
from policies.definitions.load import load_tenant, parse_tree, read_text
from policies.definitions.policy_files import (
    MAX_DEPTH,
    TESTS,
    files,
    is_test,
    policy_tests,
    strays,
    tenants,
)
from policies.testing.cases import CaseFile, parse


class Tenant(NamedTuple):
    """A tenant's policies and tests. Their files are named as the path was: from the current
    folder, or in full."""

    definitions: list[Definition]
    tests: list[CaseFile]


def read(path: Path) -> list[Tenant]:
    """The tenants whose tests `path` holds. Raises `Unusable`, or `LoadError` with every fault of
    every file."""
    folder = _tenant_folder(path)
    faults: list[DefinitionFault] = []
    if folder is not None:
        found = [_read(folder, path, path.is_absolute(), faults)]
    else:
        faults += _named(path, path.is_absolute(), strays(path))
        found = [
            _read(path.resolve() / name, path / name, path.is_absolute(), faults)
            for name in tenants(path)
        ]
    if faults:
        raise LoadError(in_order(faults))
    if not any(each.tests for each in found):
        raise Unusable(f"`{path}` holds no file that ends in `{TESTS}`")
    return found


def watched(path: Path) -> Path:
    """The folder of the tenant, or of all tenants."""
    return _tenant_folder(path) or path


def _tenant_folder(path: Path) -> Path | None:
    """The tenant's folder that `path` is or is in; None if it is a tree of tenants."""
    if not path.exists():
        raise Unusable(f"`{path}` does not exist")
    if path.is_file() and not is_test(path):
        raise Unusable(f"`{path}` is no file of tests: its name does not end in `{TESTS}`")
    if path.is_dir() and any(files(path, name)[0] for name in tenants(path)):
        return None
    here = path.resolve()
    # No further up than tests are looked for below a tenant's folder, and not the folders at the
    # top, such as `/tmp`: each would be searched as a tenant's.
    near = [above for above in here.parents if len(above.parts) > 2][: MAX_DEPTH + 1]
    for folder in (here, *near):
        if folder.is_dir() and files(folder.parent, folder.name)[0]:
            return folder
    raise Unusable(f"`{path}` holds no policies and is in no folder of a tenant that has some")


def _read(folder: Path, path: Path, absolute: bool, faults: list[DefinitionFault]) -> Tenant:
    """The tenant whose folder is `folder`, with the tests below `path`, which is in it."""
    definitions: list[Definition] = []
    found: list[Path] = []
    try:
        definitions = [
            Definition(_name(folder.parent / each.file, absolute), each.line, each.body)
            for each in load_tenant(folder.parent, folder.name)
        ]
        found = policy_tests(folder.parent, folder.name)
    except LoadError as error:
        faults += _named(folder.parent, absolute, error.faults)
    place = path.resolve()
    paths = [each for each in found if each.resolve().is_relative_to(place)]
    tests = [test for each in paths if (test := _cases(each, absolute, faults)) is not None]
    return Tenant(definitions, tests)


def _cases(path: Path, absolute: bool, faults: list[DefinitionFault]) -> CaseFile | None:
    found = DefinitionFaults(_name(path, absolute))
    cases: CaseFile | None = None
    try:
        text = read_text(path, found)
        tree = None if text is None else parse_tree(text, found)
        cases = None if tree is None else parse(tree, found)
    except DefinitionFaults.TooManyFaults:
        pass  # `found` keeps what was found, and its last entry says that there are more
    faults += found.found
    return cases


def _named(
    root: Path, absolute: bool, faults: Iterable[DefinitionFault]
) -> Iterable[DefinitionFault]:
    return [fault._replace(file=_name(root / fault.file, absolute)) for fault in faults]


def _name(path: Path, absolute: bool) -> str:
    full = os.path.realpath(path)
    return full if absolute else os.path.relpath(full)
