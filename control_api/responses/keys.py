"""Responses about API keys (`service.md` 2.3)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from policies.definitions.model import Scope

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class ListedKey:
    """An API key without its secret (2.3)."""

    key_id: str
    name: str
    scope: Scope
    bound_agent_id: str | None
    permitted_roles: list[str]
    expires_at: str | None
    created_at: str
    agent_ids: list[str] | None
    sidecar_ids: list[str] | None

    example: ClassVar[dict[str, Any]] = {
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "name": "underwriting agents",
        "scope": "evaluate",
        "bound_agent_id": None,
        "permitted_roles": [],
        "expires_at": "2027-01-31T12:00:00.000000Z",
        "created_at": _NOW,
        "agent_ids": None,
        "sidecar_ids": None,
    }


@dataclass(frozen=True, slots=True)
class ShownKey(ListedKey):
    """One API key without its secret. `sidecars` are the ids that it is used under, at most 100."""

    sidecars: list[str]

    example: ClassVar[dict[str, Any]] = {**ListedKey.example, "sidecars": []}


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new API key with its secret, shown only once (4.5)."""

    key_id: str
    name: str
    key: str
    scope: Scope
    expires_at: str | None
    created_at: str

    example: ClassVar[dict[str, Any]] = {
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "name": "underwriting agents",
        "key": "slc_" + "0" * 49,
        "scope": "evaluate",
        "expires_at": "2027-01-31T12:00:00.000000Z",
        "created_at": _NOW,
    }
