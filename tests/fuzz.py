"""Fuzzes a running control API by its OpenAPI description with `schemathesis`, with a key of each
scope.

    python -m tests.fuzz [REQUESTS] [SEED]

Runs all of its checks, with data that fits the schemas and data that doesn't, and with chains of
operations that use what others created. Repeats with new seeds until it has sent REQUESTS (20,000)
requests, and exits with 1 on a finding. Tests call `run`. Knows the operations only from the
description.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.schemas import BaseSchema

from control_api.routes import ROUTES
from tests.support.control_api import SUPERADMIN, ControlApi, running_control_api

SCOPES = ("admin", "read", "evaluate", "sidecar", "superadmin")
REQUESTS = 20_000
EXAMPLES = 40
PHASES = ("examples", "coverage", "fuzzing", "stateful")

# What no schema can say, by the beginning of a line of `details`: data that fits the schema may be
# refused for these reasons and no other. A cursor is opaque; a record's bytes are bound to those of
# the record before it; a name must be one that exists, or an address one that policy allows.
UNSAYABLE = (
    "cursor: must be taken from the previous page's `Link`",
    "records[",
    "bound_key_id: is not a live key of this tenant",
    "bound_key_id: must be null for an agent with a workload",
    "agent_ids: is required for a key of scope `sidecar`",
    "agent_ids: only a key of scope `sidecar` has it",
    "sidecar_ids: only a key of scope `sidecar` has it",
    "webhook_url: its address is not public",
    "threshold: for `high_deny_rate` it is a percentage",
    "rule_type: must stay",
    # A member that names the object must name the one of the path.
    *(f"{name}: must be the path's" for route in ROUTES for name in route.parameters),
    "status: is `",
    "agent_role, agent_id, user_id: at least one",
    "event_ids, user_id, session_id: exactly one",
    "body: needs either `never` or `always`",
    "from: is larger than `to`",
    "source_id: is required, or agent_role",
    "format: is required with filters",
    "body: `without` needs `keep_others`",
    # The tool sends `0` where it can't draw a header's pattern.
    "if_match: must be a version between quotes",
)
# What the tool takes for a resource's life, and `CONTRACT.md` says otherwise, by check and path.
SETTLED = (
    # A rotation ends the key that it replaces: what was just made is gone, and rightly.
    ("EnsureResourceAvailability", "/v1/keys/{key_id}"),
    # To delete a session is to revoke it: it stays to be read, and revoking again is no fault.
    ("UseAfterFree", "/v1/sessions/{session_id}"),
    # To delete a tenant is to deactivate it.
    ("UseAfterFree", "/v1/admin/tenants/{tenant_id}"),
    # A deleted policy has a history still, and may be restored.
    ("UseAfterFree", "/v1/policies/{policy_id}/"),
    # A token may be too long for the body's own limit: 413, which the tool does not expect.
    ("AcceptedNegativeData", "/v1/sidecars/enrol"),
)
SPARED = {"default"}


@dataclass
class Found:
    """The result of a run: responses by status, checks by name, and findings."""

    statuses: Counter[int | None] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    faults: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return self.statuses.total()

    def add(self, other: Found) -> None:
        self.statuses += other.statuses
        self.checks += other.checks
        self.faults |= other.faults

    def take(self, recorder: ScenarioRecorder) -> None:
        for interaction in recorder.interactions.values():
            answer = interaction.response
            self.statuses[None if answer is None else answer.status_code] += 1
        for case_id, nodes in recorder.checks.items():
            for node in nodes:
                self.checks[node.name] += 1
                if node.status is not Status.SUCCESS:
                    self._fault(recorder, case_id, node)

    def _fault(self, recorder: ScenarioRecorder, case_id: str, node: Any) -> None:
        interaction = recorder.interactions.get(case_id)
        answer = interaction.response if interaction else None
        told = "the check itself failed" if node.failure_info is None else ""
        if node.failure_info is not None:
            told = f"{node.failure_info.failure.message}\n{node.failure_info.code_sample}"
        said = "" if answer is None else f"\n{answer.status_code} {answer.content[:600]!r}"
        self.faults.setdefault((recorder.label, node.name), told + said)


def run(
    api: ControlApi,
    scope: str,
    *,
    seed: int,
    examples: int = EXAMPLES,
    phases: tuple[str, ...] = PHASES,
    one_in: int = 1,
) -> Found:
    """One round with a new key of `scope`, over one in so many operations."""
    own = None if scope == "superadmin" else api.admin("POST", "/v1/keys", _key(scope))
    schema = _schema(api, SUPERADMIN if own is None else own["key"], seed, examples, phases)
    schema = schema.include(lambda each: crc32(each.operation.label.encode()) % one_in == 0)
    SPARED.update(key["key_id"] for key in api.admin("GET", "/v1/keys"))
    found = Found()
    for event in from_schema(schema).execute():
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.NonFatalError):
            found.faults[event.label, "error"] = f"{event.value!r}"
        if isinstance(event, events.ScenarioFinished):
            found.take(event.recorder)
    return found


def _key(scope: str) -> dict[str, Any]:
    made: dict[str, Any] = {"name": f"fuzz {scope}", "scope": scope}
    return made | ({"agent_ids": ["*"]} if scope == "sidecar" else {})


def _schema(
    api: ControlApi, key: str, seed: int, examples: int, phases: tuple[str, ...]
) -> BaseSchema:
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "headers": {"X-API-Key": key},
            "request-timeout": 40,
            "continue-on-failure": True,
            "checks": {
                # `/` answers with a redirect. 412 is what a conflict is called where the request
                # names a version.
                "positive_data_acceptance": {
                    "expected-statuses": ["2xx", "302", "401", "403", "404", "409", "412"]
                }
            },
            "generation": {"max-examples": examples, "database": "none", "no-shrink": True},
            "phases": {phase: {"enabled": phase in phases} for phase in PHASES},
        }
    )
    url = f"http://127.0.0.1:{api.port}/openapi.json"
    # The description is rendered when it is first asked for, which takes seconds on a busy machine.
    schema = schemathesis.openapi.from_url(url, config=config, timeout=120)
    schema.validate()

    @schema.hook
    def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
        kind = type(failure).__name__
        settled = any(kind == name and case.path.startswith(path) for name, path in SETTLED)
        return not (settled or _unsayable(failure, response))

    return schema


def _unsayable(failure: Any, response: Any) -> bool:
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 422:
        return False
    lines = response.json().get("details", "").splitlines()
    return bool(lines) and all(line.startswith(UNSAYABLE) for line in lines)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keep the run's own keys and tenant: without them, every later request would be refused."""
    for name, value in (case.path_parameters or {}).items():
        if value in SPARED:
            case.path_parameters[name] = "what the run lives by"


def one_round(directory: Path, scope: str, seed: int, **less: Any) -> Found:
    """Run on a new control API, and verify its log at the end."""
    with running_control_api(directory) as api:
        found = run(api, scope, seed=seed, **less)
        api.verified()
    return found


def rounds(requests: int, seed: int) -> Iterator[tuple[str, Found]]:
    """Run each scope once on a new control API, and repeat until `requests` have been sent."""
    made = 0
    while made < requests:
        for scope in SCOPES:
            with tempfile.TemporaryDirectory(prefix="sluice-fuzz-") as directory:
                found = one_round(Path(directory), scope, seed)
            made += found.requests
            yield scope, found
        seed += 1


def main(arguments: list[str]) -> int:
    requests, seed = (*map(int, arguments), *(REQUESTS, 1)[len(arguments) :])
    total: dict[str, Found] = {}
    for scope, found in rounds(requests, seed):
        total.setdefault(scope, Found()).add(found)
        print(f"{scope}: {found.requests} requests, {len(found.faults)} faults", flush=True)
    for scope, found in total.items():
        print(f"{scope}: {found.requests} requests, {found.checks.total()} checks")
        print(f"  {dict(sorted(found.statuses.items(), key=str))}")
        for (operation, check), told in found.faults.items():
            print(f"== {scope}: {operation}: {check}\n{told}\n")
    print(f"{sum(found.requests for found in total.values())} requests in all")
    return 1 if any(found.faults for found in total.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
