"""Which modules are compiled: what every decision, every record, every verified entry and every
request of the sidecar runs.

A module belongs here if a measurement says so (`CONTRIBUTING.md`). What must stay out:

- dataclasses with slots that read their own `__slots__`, since a compiled class has none:
  `policies.definitions.model`, `policies.sets.signed_head`;
- classes that are pickled or copied and frozen: `policies.sets.role`;
- errors that inherit from `OSError` and its children, which mypyc can't: `disconnects`;
- attributes whose name is a word of C after one more underscore: `_thread` of the spool's writer;
- coroutines that await in an `except` block, or use `async with`: mypyc loses the error there, and
  a bare `raise` then ends the process (`tests/deploy/compile/test_modules.py` finds them);
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
    "spool_chain", "stored_entry", "verify", "walk.erasures", "walk.silences",
)  # fmt: skip
CORE = (
    *(f"policies.checks.{name}" for name in CHECKS),
    "policies.definitions.wildcard",
    "policies.evaluate",
    "policies.ground.canonical",
    "policies.ground.ids",
    "policies.ground.json_body",
    "policies.ground.random_buffer",
    "policies.retrieval",
    "policies.sets.policy_set",
    *(f"policies.trail.{name}" for name in TRAIL),
)
HTTP = (
    "attribution", "body_budget", "head_template", "headers", "request_target", "response_head",
    "client.connection", "client.pool",
    "messages.body", "messages.chunks", "messages.request_parser", "messages.response_head",
    "messages.response_parser",
    "server.connection", "server.head_cache", "server.incoming", "server.request",
    "server.request_loop", "server.response", "server.service", "server.time_limits",
)  # fmt: skip
PROXY = (
    "messages.request_reader", "messages.response_relay",
    "pipeline.authorizer", "pipeline.classifier", "pipeline.forward", "pipeline.lineage",
    "pipeline.pipeline", "pipeline.protocol_calls", "pipeline.request_context",
    "pipeline.response_inspector", "proxy_metrics", "upstream.client", "upstream.response",
)  # fmt: skip
SIDECAR = (
    "sidecar.api.dispatch",
    "sidecar.api.handlers",
    "sidecar.control.clock",
    "sidecar.enforce",
    *(f"sidecar.http.{name}" for name in HTTP),
    "sidecar.metrics.counters",
    "sidecar.metrics.metrics",
    "sidecar.platform.eager",
    "sidecar.policy_cache.freshness",
    *(f"sidecar.proxy.{name}" for name in PROXY),
    "sidecar.recorder",
    "sidecar.spool.storage.frames",
    "sidecar.spool.writing.appender",
    "sidecar.spool.writing.batcher",
)
# Each group has one extension module with the code of all its modules; those only lead to it. An
# image without the sidecar leaves out the second.
GROUPS = {"sluice_core": CORE, "sluice_sidecar": SIDECAR}
MODULES = (*CORE, *SIDECAR)


def file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


FILES = tuple(map(file_of, MODULES))
