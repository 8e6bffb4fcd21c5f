"""Lists the modules that are compiled: the code that every decision, every record, every verified
entry and every request of the sidecar runs.

A module belongs here if a measurement says so (`CONTRIBUTING.md`). These must stay out:

- dataclasses with slots that read their own `__slots__`, since a compiled class has none:
  `policies.definitions.model`, `policies.sets.signed_head`;
- classes that are pickled or copied and frozen: `policies.sets.role`;
- errors that inherit from `OSError` and its children, which mypyc can't: `disconnects`;
- attributes whose name is a word of C after one more underscore: `_thread` of the spool's writer;
- coroutines (pipeline, enforcer, connections), for the present: compiled, they are faster by
  a third, but an error that passes two `try` statements was not caught, and one that waits in an
  `except` block ended the process (`tests/deploy/compile/test_modules.py` finds the latter);
- what tests replace names in: a compiled class can't be changed, and compiled functions call each
  other without looking at a module.

A compiled function checks the types of its arguments and raises `TypeError`; the same function in
Python does not. So a value from outside stays `Any` or `object` until something has looked at it.
"""

from __future__ import annotations

CHECKS = (
    "agent_id_required", "agent_permitted", "binding", "finding", "order", "policy_exists",
    "registry", "role_restriction", "sensitivity", "session", "source", "task",
)  # fmt: skip
TRAIL = (
    "commitment", "entry", "lineage", "merkle_tree", "record", "record_fast_path", "record_schema",
    "spool_chain", "verify", "walk.compact_range", "walk.continuity", "walk.gaps",
    "walk.joined_walk", "walk.range_walk",
)  # fmt: skip
CORE = (
    *(f"policies.checks.{name}" for name in CHECKS),
    "policies.definitions.wildcard",
    "policies.evaluate",
    "policies.ground.canonical",
    "policies.ground.ids",
    "policies.retrieval",
    "policies.sets.policy_set",
    *(f"policies.trail.{name}" for name in TRAIL),
)
HTTP = (
    "attribution", "grpc.protobuf", "grpc.schema", "grpc.wire", "headers", "rendered_response",
    "request_target",
)  # fmt: skip
SIDECAR = (
    "sidecar.control.clock",
    *(f"sidecar.http.{name}" for name in HTTP),
    "sidecar.metrics.metrics",
    "sidecar.policy_cache.freshness",
    "sidecar.recorder",
    "sidecar.spool.storage.frames",
    "sidecar.spool.writing.appender",
)
# Each group has one extension module with the code of all its modules; those only lead to it. An
# image without the sidecar leaves out the second.
GROUPS = {"sluice_core": CORE, "sluice_sidecar": SIDECAR}
MODULES = (*CORE, *SIDECAR)


def file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


FILES = tuple(map(file_of, MODULES))
