"""Responses with counts of decisions (`service.md` 2.11, contract section 4)."""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class TypeCount:
    """Events of one source type."""

    total: int
    allowed: int
    denied: int

    example: ClassVar[dict[str, Any]] = {"total": 17, "allowed": 14, "denied": 3}


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Events of one role."""

    agent_role: str
    total: int
    denied: int

    example: ClassVar[dict[str, Any]] = {"agent_role": "loan_underwriter", "total": 17, "denied": 3}


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Events of one source."""

    source_id: str
    total: int
    denied: int

    example: ClassVar[dict[str, Any]] = {"source_id": "contracts", "total": 17, "denied": 3}


@dataclass(frozen=True, slots=True)
class SpanCount:
    """Decisions made from `begin` on, for as long as a span lasts, by their own time."""

    begin: str
    allowed: int
    denied: int

    example: ClassVar[dict[str, Any]] = {
        "begin": "2026-01-31T12:00:00.000000Z",
        "allowed": 14,
        "denied": 3,
    }


@dataclass(frozen=True, slots=True)
class OverTime:
    """Decisions over a window of time: of each span of `span_minutes`, oldest first; the last one
    has not ended yet."""

    span_minutes: int
    spans: list[SpanCount]

    example: ClassVar[dict[str, Any]] = {"span_minutes": 1, "spans": [SpanCount.example]}


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of the audit trail (2.11, contract section 4); `deny_rate` is from 0 to 1."""

    total: int
    allowed: int
    denied: int
    deny_rate: float
    by_source_type: dict[str, TypeCount]
    top_roles: list[RoleCount]
    top_sources: list[SourceCount]
    over_time: OverTime | None

    example: ClassVar[dict[str, Any]] = {
        **TypeCount.example,
        "deny_rate": 0.176,
        "by_source_type": {"api": TypeCount.example},
        "top_roles": [RoleCount.example],
        "top_sources": [SourceCount.example],
        "over_time": None,
    }
