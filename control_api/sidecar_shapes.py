"""What a sidecar is answered with: its policy set, its sessions, receipts for its records."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class SetDocument:
    """A document of the policy set; `body` is its canonical JSON as text, null once removed."""

    name: str
    revision: int
    digest: str | None
    body: str | None


@dataclass(frozen=True, slots=True)
class PolicySetPage:
    """What changed in the policy set since a revision; no documents is the heartbeat."""

    epoch: str
    revision: int
    reset: bool
    more: bool
    now: str
    tenant_id: str
    log_key: str
    documents: list[SetDocument]

    example: ClassVar[dict[str, Any]] = {
        "epoch": "0194bd6e7c007a1b",
        "revision": 42,
        "reset": False,
        "more": False,
        "now": _NOW,
        "tenant_id": "default",
        "log_key": "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw=",
        "documents": [
            {"name": "agent/agt_loans", "revision": 42, "digest": None, "body": None},
        ],
    }


@dataclass(frozen=True, slots=True)
class ClaimedSession:
    """A session as it stands; its owner is whoever claimed it first."""

    session_id: str
    state: Literal["active", "expired", "revoked"]
    agent_role: str
    agent_id: str | None
    expires_at: str

    example: ClassVar[dict[str, Any]] = {
        "session_id": "s-77",
        "state": "active",
        "agent_role": "loan_underwriter",
        "agent_id": "agt_loans",
        "expires_at": "2026-02-01T12:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class Receipt:
    """What of a sidecar's spool is in the log, signed with the log's key."""

    source: str
    instance: str
    n: int
    hash: str
    signature: str

    example: ClassVar[dict[str, Any]] = {
        "source": "sidecar-1",
        "instance": "6f1d2a9c",
        "n": 127,
        "hash": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
        "signature": "A" * 86 + "==",
    }
