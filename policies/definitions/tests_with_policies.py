"""Finds files named like tests that define policies: their author believes that they are in force.

Until there were tests, such a file was one of policies. Nothing else in a file of tests keeps
policies from being loaded, so nothing else of it is read here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from policies.definitions.definition import DefinitionFault, LoadError
from policies.definitions.policy_files import TESTS, policy_tests

# The member `policies` of a whole file, in a block or in braces.
_POLICIES = re.compile(rb"""^(?:\{ ?)?["']?policies["']? ?:""", re.MULTILINE)
_SEARCHED = 1024 * 1024
"""Bytes; a larger file can't be one of policies."""


def policies_among_tests(root: Path, tenant_id: str) -> Iterator[DefinitionFault]:
    """A fault for each such file of the tenant, and for each link out of its folder."""
    try:
        paths = policy_tests(root, tenant_id)
    except LoadError as error:
        yield from error.faults
        return
    for path in paths:
        found = _POLICIES.search(text := _read(path))
        if found is not None:
            message = f"defines policies, but a file that ends in `{TESTS}` has tests alone"
            line = text.count(b"\n", 0, found.start()) + 1
            yield DefinitionFault(str(path.relative_to(root)), line, "policies", message)


def _read(path: Path) -> bytes:
    """The file's bytes; none if it can't be read, since then it can't be told what it defines."""
    try:
        return path.read_bytes()[:_SEARCHED] if path.is_file() else b""
    except OSError:
        return b""
