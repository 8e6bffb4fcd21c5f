"""Searches and evaluations of a running sidecar, as a client of the standard makes them."""

from __future__ import annotations

from typing import Any

import orjson

from policies.definitions.model import Agent, Key, Policy
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    role_document,
    role_name,
)
from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.sidecar import Answer, RunningSidecar

ADMIN_KEY = make_key(b"a" * 32)
Documents = dict[str, bytes | None]


def secret(name: str) -> str:
    """The key called `name`."""
    return make_key(name.encode().ljust(32, b"-"))


def keyed(key: str, entry: Key) -> Documents:
    return {key_name(key_digest(key)): key_document(entry)}


def agent(name: str, *roles: str, status: Any = "approved", key: str | None = None) -> Documents:
    return {agent_name(name): agent_document(Agent(name, status, roles, key))}


def policy(role: str, *sources: str, **changes: Any) -> Policy:
    fields: dict[str, Any] = {
        "policy_id": f"pol_{role}",
        "version": 1,
        "name": f"of_{role}",
        "agent_role": role,
        "allowed_sources": sources,
        "denied_sources": (),
        "max_sensitivity": "critical",
    }
    return Policy(**{**fields, **changes})


def role(name: str, *policies: Policy) -> Documents:
    return {role_name(name): role_document(policies)}


def question(
    subject: str | None = None,
    action: str | None = "read",
    resource: str | None = None,
    *,
    subject_type: str = "agent",
    resource_type: str = "record",
    subject_properties: Any = None,
    resource_properties: Any = None,
    **others: Any,
) -> dict[str, Any]:
    """A request's body. What is None is left out."""
    body: dict[str, Any] = {
        "subject": {"type": subject_type, "id": subject, "properties": subject_properties},
        "resource": {"type": resource_type, "id": resource, "properties": resource_properties},
    }
    for name, entity in body.items():
        body[name] = {each: value for each, value in entity.items() if value is not None}
    if action is not None:
        body["action"] = {"name": action}
    return body | others


class Client:
    """Asks one sidecar, with one key."""

    def __init__(self, running: RunningSidecar, key: str = EVALUATE_KEY) -> None:
        self._running = running
        self._key = key

    async def post(self, path: str, body: Any, **given: Any) -> Answer:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self._running.call(
            "POST", f"/access/v1/{path}", raw, **{"key": self._key, **given}
        )

    async def search(self, kind: str, body: Any) -> dict[str, Any]:
        """The answer to a search, which must succeed."""
        answer = await self.post(f"search/{kind}", body)
        assert answer.status == 200, answer
        members: dict[str, Any] = answer.json()
        assert next(iter(members)) == "page"
        return members

    async def found(self, kind: str, body: Any) -> list[str]:
        """The ids or names of all results, page after page."""
        results: list[dict[str, str]] = []
        page: dict[str, Any] = {}
        while True:
            answer = await self.search(kind, {**body, "page": page} if page else body)
            results += answer["results"]
            assert answer["page"]["count"] == len(answer["results"])
            if not answer["page"]["next_token"]:
                break
            page = {"token": answer["page"]["next_token"]}
        assert answer["page"]["total"] == len(results)
        return [each["name" if kind == "action" else "id"] for each in results]

    async def allowed(self, body: Any) -> bool:
        """The decision on an evaluation."""
        answer = await self.post("evaluation", body)
        assert answer.status == 200, answer
        decision = answer.json()["decision"]
        assert type(decision) is bool
        return decision
