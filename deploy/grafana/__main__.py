"""Writes the dashboards' JSON files beside this file, built with Grafana's own library: `python -m
deploy.grafana`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model

from deploy.grafana.agent import AGENT
from deploy.grafana.board import Board, Graph, Number
from deploy.grafana.fleet import FLEET

# Every panel asks the data source that the reader chooses at the top of the dashboard.
_SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH = 24  # of Grafana's grid
_NUMBER_HEIGHT, _GRAPH_HEIGHT = 4, 8


def rendered(board: Board) -> str:
    """Return a dashboard as JSON. The same board always gives the same bytes."""
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["sluice"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
    )
    if board.variable is not None:
        built.with_variable(
            dashboard.QueryVariable("instance")
            .label("Sidecar")
            .datasource(_SOURCE)
            .query(f"label_values({board.variable}, instance)")
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    for row in board.rows:
        built.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            built.with_panel(_number(panel) if isinstance(panel, Number) else _graph(panel))
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _number(panel: Number) -> stat.Panel:
    return (
        stat.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .span(_WIDTH // 6)
        .height(_NUMBER_HEIGHT)
        .graph_mode(options.BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(panel.colours))
        .with_target(_query(panel.query, panel.title))
    )


def _graph(panel: Graph) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .min(0)
        .fill_opacity(8)
        .span(_WIDTH // 2)
        .height(_GRAPH_HEIGHT)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.TABLE)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(options.TooltipDisplayMode.MULTI)
            .sort(options.SortOrder.DESCENDING)
        )
    )
    for legend, expression in panel.queries.items():
        made.with_target(_query(expression, legend))
    if panel.limit is not None:
        made.thresholds(_thresholds({panel.limit: "red"}))
        line = common.GraphThresholdsStyleConfig().mode(options.GraphTresholdsStyleMode.LINE)
        made.thresholds_style(line)
    return made


def _query(expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(_SOURCE).expr(expression).legend_format(legend)


def _thresholds(colours: Mapping[float, str]) -> dashboard.ThresholdsConfig:
    # Grafana wants a first step without a value: the colour of everything below the others.
    steps = [model.Threshold(value=None, color="green")]
    steps += [model.Threshold(value=value, color=colour) for value, colour in colours.items()]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


FOLDER = Path(__file__).parent
FILES = {FOLDER / "fleet.json": FLEET, FOLDER / "agent.json": AGENT}

if __name__ == "__main__":
    for path, board in FILES.items():
        path.write_text(rendered(board), encoding="utf-8")
        print(path.name)
