"""Makes cases of a file of tests, or says every fault of it with its line.

Knows neither YAML nor files: `policies.definitions.load` reads the tree.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from policies.definitions.definition import DefinitionFaults, Node, shown
from policies.definitions.model import Key, TenantSettings
from policies.testing.cases import Asked, CaseFile, Entry, GivenAgent, Matrix
from policies.testing.file_form import TEST_FILE, UNREGISTERED

MAX_CASES: Final = 100_000
"""The limit on the combinations of one matrix."""
_FROZEN_AT = 0
_UNBOUND = Key("test", "evaluate")


def parse(tree: Node, faults: DefinitionFaults) -> CaseFile | None:
    """The cases in `tree`; None if it has faults, which are added to `faults`."""
    before = len(faults.found)
    read = TEST_FILE.read("", tree, faults)
    if read is None or len(faults.found) > before:
        return None
    given = read.get("given", {})
    keys = {name: _key(name, key) for name, key in given.get("keys", {}).items()}
    items: list[Node] = tree.value["tests"].value
    entries = tuple(
        _entry(node, test, _calling(node, test, keys, faults), faults)
        for node, test in zip(items, read["tests"], strict=True)
    )
    if len(faults.found) > before:
        return None
    tenant = given.get("tenant", {})
    settings = TenantSettings(
        "test",
        require_agent_id=tenant.get("require_agent_id", False),
        frozen_at=_FROZEN_AT if tenant.get("frozen") else None,
    )
    agents = {name: _agent(agent) for name, agent in given.get("agents", {}).items()}
    return CaseFile(faults.file, settings, agents, entries)


def _agent(given: Mapping[str, Any]) -> GivenAgent:
    role = given.get("agent_role")
    # The registry's default: an agent that lists no roles may use its own.
    roles = given.get("permitted_roles") or ([] if role is None else [role])
    status = given.get("status", "approved")
    status = None if status == UNREGISTERED else status
    return GivenAgent(status, tuple(roles), given.get("bound_key_id"))


def _key(name: str, given: Mapping[str, Any]) -> Key:
    roles = tuple(given.get("permitted_roles", ()))
    return Key(name, "evaluate", given.get("bound_agent_id"), roles)


def _calling(
    node: Node, test: Mapping[str, Any], keys: Mapping[str, Key], faults: DefinitionFaults
) -> Key:
    """The key of a case: the one it names, else the only one given, else an unbound one."""
    name = test.get("key")
    if name is not None and name in keys:
        return keys[name]
    if name is not None:
        faults.add(node.value["key"].line, "key", f"{shown(name)} is not in `given.keys`")
    elif len(keys) > 1:
        faults.add(node.line, "key", "is required: `given.keys` has several")
    return _UNBOUND if len(keys) != 1 else next(iter(keys.values()))


def _entry(node: Node, test: Mapping[str, Any], key: Key, faults: DefinitionFaults) -> Entry:
    name = test.get("name")
    if "ask" in test:
        return Asked(node.line, name, key, test["ask"], test["expect"])
    values = {member: tuple(dict.fromkeys(of)) for member, of in test["matrix"].items()}
    size = prod(map(len, values.values()))
    if size > MAX_CASES:
        line = node.value["matrix"].line
        faults.add(line, "matrix", f"has {size} combinations; the most is {MAX_CASES}")
    # An item that agrees with no combination would expect nothing: its author meant another.
    for item, at in zip(test["expect_allow"], node.value["expect_allow"].value, strict=True):
        for member, value in item.items():
            if value not in values.get(member, ()):
                told = "null" if value is None else shown(value)
                faults.add(at.line, "expect_allow", f"{member}: {told} is not in the matrix")
    return Matrix(node.line, name, key, values, tuple(test["expect_allow"]))
