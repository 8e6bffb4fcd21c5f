"""Responses about the service's own state."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class SelfVerified:
    """What the scheduled verification found, over all logs: `damaged` if one does not verify,
    `pending` until every log was verified to its end. `finished_at` is when the oldest was."""

    state: Literal["valid", "damaged", "pending"]
    finished_at: str | None

    example: ClassVar[dict[str, Any]] = {"state": "valid", "finished_at": _NOW}


@dataclass(frozen=True, slots=True)
class Ready:
    """The service is ready; `version` is the software's version."""

    status: Literal["ok"]
    version: str
    self_verification: SelfVerified

    example: ClassVar[dict[str, Any]] = {
        "status": "ok",
        "version": "0.1.0",
        "self_verification": SelfVerified.example,
    }
