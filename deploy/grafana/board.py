"""The parts of a dashboard, as plain data. Knows neither the metrics nor Grafana's format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Number:
    """A panel that shows the newest value of one query. `colours` maps thresholds to colours: from
    a threshold on, the value has that colour, and below the first it is green."""

    title: str
    query: str
    unit: str
    description: str
    colours: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graph:
    """A panel with lines over time. `queries` maps the name of each line to its PromQL query;
    `limit` draws a red line at that value."""

    title: str
    queries: Mapping[str, str]
    unit: str
    description: str
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels under one heading."""

    title: str
    panels: tuple[Number | Graph, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `uid` identifies it in links and in provisioning, and never changes."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variable: str | None = None
    """The metric whose label `instance` lists the sidecars that the reader can choose from; None if
    there is no choice. Queries refer to the chosen one as `$instance`."""
