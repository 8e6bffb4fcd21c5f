"""What the console's benchmark shows: the week of the console's tests, a long log behind it, and as
many policies, agents, keys, sessions and sidecars as a large company has. Measures nothing.
"""

import asyncio
import http.client
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from control_api.audit.event_operations import follow_events
from control_api.audit.export_operations import export_log
from control_api.console.page import ANYONE, Page
from control_api.console.pages import PAGES
from tests.benchmarks.make_log import make_log
from tests.control_api.console.addresses import address_of
from tests.support.company_week import CompanyWeek, inhabited
from tests.support.control_api import SUPERADMIN, ControlApi
from tests.support.open_store import opened
from tests.support.stack import Stack

AGENTS, KEYS, SESSIONS, SIDECARS, TENANTS = 1_000, 500, 5_000, 1_000, 100
IN_A_FILE = 2_000
"""Policies: a file may have 1 MiB."""
BATCH = 100
SEARCHES = (
    "decision=DENY",
    "agent_id=agent-7",
    "user_id=user-none",
    "source_id=source-3&decision=DENY&agent_role=support",
    "from=2026-01-01T00:00:00Z",
)
STREAMS = (export_log, follow_events)
"""What takes as long as its reader wants."""


def seeded(folder: Path, events: int, policies: int, cores: set[int]) -> tuple[Stack, CompanyWeek]:
    """A control API with all of it, started, and what its pages' addresses need."""
    stack = Stack(folder, control_cores=cores)
    stack.control.environ["SLUICE_SUPERADMIN_KEY"] = SUPERADMIN
    with inhabited(folder) as world:
        pass
    asyncio.run(_fill(folder, events))
    for number, text in enumerate(policy_files(policies)):
        (stack.policy_file.parent / f"part-{number}.yaml").write_text(text)
    stack.start_control()
    assert not stack.admin("GET", "/v1/policies/files")["faults"]
    _populate(stack)
    # Its addresses ask the service that runs now.
    return stack, replace(world, api=cast("ControlApi", stack))


def policy_files(number: int) -> Iterator[str]:
    """So many policies, a hundred for each role."""
    for first in range(0, number, IN_A_FILE):
        made = [
            {
                "name": f"policy-{each}",
                "agent_role": f"role-{each // 100}",
                "allowed_sources": ["handbook", f"source-{each % 40}"],
                "denied_sources": ["payroll"],
                "max_sensitivity": "high",
            }
            for each in range(first, min(first + IN_A_FILE, number))
        ]
        yield json.dumps({"policies": made})  # JSON is YAML, and quickly read


async def _fill(folder: Path, events: int) -> None:
    async with opened(f"sqlite+aiosqlite:///{folder / 'data' / 'sluice.db'}") as world:
        await make_log(world, events)


def _populate(stack: Stack) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stack.control.port, timeout=60)
    for method, path, body in _requests(stack):
        key = SUPERADMIN if path.startswith("/v1/admin/") else stack.admin_key
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (path, text)
    connection.close()


def _requests(stack: Stack) -> Iterator[tuple[str, str, Any]]:
    for number in range(AGENTS):
        agent = {"agent_id": f"agent-{number}", "agent_role": f"role-{number % 100}"}
        yield "POST", "/v1/agents", agent
        for status in ("pending_approval", "approved")[: number % 3]:
            yield "PATCH", f"/v1/agents/agent-{number}/status", {"status": status}
    for number in range(KEYS):
        yield "POST", "/v1/keys", {"name": f"key {number}", "scope": "evaluate"}
    held = stack.admin("GET", "/v1/sidecars/policy-set?since=0")
    for number in range(SIDECARS):
        yield "POST", "/v1/sidecars/report", _report(number, held)
    asked = {"agent_role": "support_assistant", "source_id": "handbook"}
    for first in range(0, SESSIONS, BATCH):
        items = [
            {**asked, "user_id": f"user-{each}", "session_id": f"session-{each}"}
            for each in range(first, min(first + BATCH, SESSIONS))
        ]
        levels = [{**each, "sensitivity_level": "low"} for each in items]
        yield "POST", "/v1/context/evaluate/batch", {"items": levels, "semantics": "all"}
    for number in range(TENANTS):
        yield "POST", "/v1/admin/tenants", {"name": f"tenant {number}"}
    # The week's candidate was all that there would be; this one leaves the others as they are.
    [changed] = json.loads(next(policy_files(1)))["policies"]
    candidate = {"policies": [changed | {"max_sensitivity": "low"}], "keep_others": True}
    yield "PUT", f"/v1/policies/candidates/{CompanyWeek.candidate}", candidate


def _report(number: int, held: dict[str, Any]) -> dict[str, Any]:
    return {
        "sidecar_id": f"pod-{number}",
        "run_id": f"9f1c2a7b{number:04}",
        "version": "1.0.0",
        "agent_id": f"agent-{number}",
        "agent_role": f"role-{number % 100}",
        "epoch": held["epoch"],
        "revision": held["revision"],
        "policy_set_age_ms": 400,
        "spool_depth": 0,
    }


def timed_pages() -> list[Page]:
    """Every page of the table but streams, and those that need an identity provider."""
    return [
        page
        for page in PAGES
        if page.method == "GET"
        and page.operation not in STREAMS
        and not (page.operation == ANYONE and address_of(page.path).data)
    ]


def addresses(world: CompanyWeek) -> Iterable[tuple[str, str]]:
    """Where each page is found, and whose it is; then searches of a long log."""
    for page in timed_pages():
        known = address_of(page.path)
        yield known.of(page, world), known.by
        if page.path == "/console/decision":
            # A session with many thousand decisions.
            yield f"{page.path}?{urlencode({'id': 'event-500000'})}", known.by
    for window in ("hour", "week"):
        yield f"/console?window={window}", "admin"
    for search in SEARCHES:
        yield f"/console/decisions?{search}", "admin"
