"""Which modules are compiled: what every decision, every record and every verified entry runs.

A module belongs here if a measurement says so (`CONTRIBUTING.md`). What must stay out:

- dataclasses with slots that read their own `__slots__`, since a compiled class has none:
  `policies.definitions.model`, `policies.sets.signed_head`;
- classes that are pickled or copied and frozen: `policies.sets.role`;
- coroutines, and what tests replace names in.

A compiled function checks the types of its arguments and raises `TypeError`; the same function in
Python does not. So a value from outside stays `Any` or `object` until something has looked at it.
"""

from __future__ import annotations

CHECKS = (
    "agent_id_required", "agent_permitted", "binding", "finding", "order", "policy_exists",
    "registry", "role_restriction", "sensitivity", "session", "source", "task",
)  # fmt: skip
TRAIL = (
    "commitment", "entry", "merkle_tree", "record", "record_fast_path", "record_schema",
    "spool_chain", "stored_entry", "verify", "walk.erasures", "walk.silences",
)  # fmt: skip
MODULES = (
    *(f"policies.checks.{name}" for name in CHECKS),
    "policies.definitions.wildcard",
    "policies.evaluate",
    "policies.ground.canonical",
    "policies.ground.json_body",
    "policies.retrieval",
    "policies.sets.policy_set",
    *(f"policies.trail.{name}" for name in TRAIL),
)
FILES = tuple(name.replace(".", "/") + ".py" for name in MODULES)
