"""The parts of a dashboard, as plain data. Knows no metric and no form of Grafana's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Number:
    """The newest value of one query. From each value in `colours` on, it has that colour; below
    the first it is green."""

    title: str
    query: str
    unit: str
    description: str
    colours: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graph:
    """Lines over time: PromQL by legend. `limit` draws a red line at that value."""

    title: str
    queries: Mapping[str, str]
    unit: str
    description: str
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Number | Graph, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. `uid` is its name in links and for provisioning, which never changes."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variable: str | None = None
    """The metric whose `instance` label the reader chooses a sidecar from; None without a choice.
    Queries use the choice as `$instance`."""
