"""A control API, a sidecar with every recipe's door, and an upstream: what gateways stand before.

The agent of the recipes may read `/`, `/info/…`, `/pub/…` and `/mypath`, about as in the table of
ways past proxies that the proxy's tests have too. An upstream that gets a request must have got the
id of an ALLOW with it, of the very path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from tests.deploy.gateways import recipes
from tests.deploy.gateways.gateway_programs import Behind
from tests.deploy.gateways.recording_upstream import Seen, Upstream, running_upstream
from tests.support.ports import free_port
from tests.support.stack import Stack

AGENT, ROLE = "agt_edge", "edge_reader"
OTHER = "other_reader"
"""A role of the tenant that may read `/other/…`, and nothing else."""
POLICIES = f"""\
policies:
  - name: edge-reads
    agent_role: {ROLE}
    allowed_sources:
      - rest://crm/
      - rest://crm/info/*
      - rest://crm/pub/*
      - rest://crm/mypath
      - mcp://tools/tool/search
      - opensearch://logs/public
    denied_sources: []
    max_sensitivity: high
  - name: others-read
    agent_role: {OTHER}
    allowed_sources: [rest://crm/other/*]
    denied_sources: []
    max_sensitivity: high
"""


TWINS = ("tools", "logs")
"""The sources that are judged by the body: MCP and OpenSearch. Each recipe's door is there for
them, too."""


@dataclass
class Protected:
    """The services, the upstream, and what a gateway has to know of them."""

    stack: Stack
    upstream: Upstream
    grpc_doors: tuple[int, ...]
    """The ports of the gRPC doors: the recipe's own, and those of `TWINS`."""
    others_key: str = ""
    """A key of the scope `evaluate` that is not the gateway's."""
    _events: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def behind(self) -> Behind:
        """What a gateway is put before, with the recipe's own door."""
        http = self.stack.sidecar.port
        return Behind(http, self.grpc_doors[0], self.upstream.port, self.stack.agent_key)

    def behind_twin(self, alias: str) -> Behind:
        """The same, with the door of the source `alias`."""
        return replace(self.behind, grpc_door=self.grpc_doors[1 + TWINS.index(alias)])

    def events(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The log's events of these ids, once all have arrived there."""
        missing = {each for each in ids if each not in self._events}
        for each in sorted(missing):
            self.stack.wait_shipped(each)
        if missing:
            self._events.update({each["event_id"]: each for each in self.stack.events()})
        return self._events

    def event(self, seen: Seen) -> dict[str, Any]:
        """The log's event of the one id that an upstream got."""
        (event_id,) = seen.all("x-sluice-event-id")
        return self.events([event_id])[event_id]

    def unjudged(self, seen: list[Seen]) -> list[tuple[Seen, object]]:
        """The requests that reached the upstream without an ALLOW of their very path."""
        ids = [each.all("x-sluice-event-id") for each in seen]
        events = self.events(each[0] for each in ids if len(each) == 1)
        found: list[tuple[Seen, object]] = []
        for each, own in zip(seen, ids, strict=True):
            event = events.get(own[0]) if len(own) == 1 else None
            if event is None or event["decision"] != "ALLOW" or not _is_of(event, each):
                found.append((each, event))
        return found


def _is_of(event: dict[str, Any], seen: Seen) -> bool:
    return bool(unquote(event["source_id"]) == unquote(f"rest://crm{seen.path}"))


def settings(
    stack: Stack, grpc_doors: tuple[int, ...], upstream: int, wanted: Iterable[str]
) -> dict[str, Any]:
    """The sidecar's settings: the stack's own, and what the recipes add, with the test's ports.
    Each door is there as in its recipe, and for each of `TWINS`."""
    whole: dict[str, Any] = yaml.safe_load((stack.directory / "sidecar.yaml").read_text())
    whole |= {"agent": {"id": AGENT, "role": ROLE, "key_file": "agent.key"}}
    sources = {each["alias"]: each for each in recipes.sidecar("mcp")["sources"]}
    # A check asks such a source what names stand for.
    search = {"kind": "opensearch", "upstream": f"http://127.0.0.1:{upstream}"}
    sources["logs"] = {"alias": "logs", "sensitivity": "medium", **search}
    doors: list[dict[str, Any]] = []
    for name in wanted:
        added = recipes.sidecar(name)
        for source in added["sources"]:
            assert sources.setdefault(source["alias"], source) == source, name
        for door in added["doors"]:
            twins = [{**door, "name": f"{door['name']}-{each}", "source": each} for each in TWINS]
            for each, port in zip([door, *twins], grpc_doors, strict=True):
                if "listen" in door:
                    each["listen"] = f"127.0.0.1:{port}"
                doors.append(each)
    return {**whole, "sources": list(sources.values()), "doors": doors}


@contextmanager
def protected(directory: Path, wanted: Iterable[str]) -> Iterator[Protected]:
    """All of it, running, with the doors of these recipes."""
    stack = Stack(directory, policies=POLICIES, role=ROLE)
    with running_upstream() as upstream:
        found = Protected(stack, upstream, (free_port(), free_port(), free_port()))
        try:
            stack.start_control()
            stack.prepare()
            stack.admin("POST", "/v1/agents", {"agent_id": AGENT, "agent_role": ROLE})
            for status in ("pending_approval", "approved"):
                stack.admin("PATCH", f"/v1/agents/{AGENT}/status", {"status": status})
            found.others_key = stack.new_key("another's", "evaluate")
            config = settings(stack, found.grpc_doors, upstream.port, wanted)
            (directory / "sidecar.yaml").write_text(
                json.dumps(config)
            )  # JSON is YAML without aliases
            stack.sidecar.start()
            yield found
        finally:
            stack.stop()
