"""Draws charts as SVG on the server. Colours are classes of the style sheet, in light and dark; a
page shows the numbers of each chart in a table beside it."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

_WIDTH, _HEIGHT = 640.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 8.0, 10.0, 24.0
_STEPS = (1, 2, 5)
_LINE = Markup('<polyline class="s{}" stroke-width="2" stroke-linejoin="round" points="{}"/>')
_GRID = Markup(
    '<line class="{}" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>'
    '<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>'
)
_BAR = Markup('<rect class="b{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')


class Series(NamedTuple):
    """The name of a line in a chart, and its value for each place from left to right."""

    name: str
    values: Sequence[float]


def line_chart(title: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Draw lines over the same places. `labels` are those of the places; the first, the middle and
    the last are shown. Raises `ValueError` if a series has another number of values than there are
    labels."""
    if any(len(each.values) != len(labels) for each in series):
        raise ValueError("a series needs a value for each label")
    top = ceiling(max((max(each.values, default=0) for each in series), default=0))
    lines = Markup().join(
        _LINE.format(number, _points(each.values, top)) for number, each in enumerate(series, 1)
    )
    return _framed(title, labels, top, lines)


def bar_chart(title: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Draw bars. Those of one place are stacked, from the first series up. Raises like
    `line_chart`."""
    if any(len(each.values) != len(labels) for each in series):
        raise ValueError("a series needs a value for each label")
    totals = [sum(values) for values in zip(*(each.values for each in series), strict=True)]
    top = ceiling(max(totals, default=0))
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    bars = []
    for place in range(len(labels)):
        below = 0.0
        for number, each in enumerate(series, 1):
            value = each.values[place]
            if value <= 0:
                continue
            upper = _y(below + value, top)
            width, height = max(step - 1.0, 0.5), max(_y(below, top) - upper, 0.5)
            bars.append(_BAR.format(number, _LEFT + place * step, upper, width, height))
            below += value
    return _framed(title, labels, top, Markup().join(bars))


def ceiling(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, 50, … that is not below `value`."""
    unit = 1.0
    while True:
        for step in _STEPS:
            if step * unit >= value:
                return step * unit
        unit *= 10


def _short(value: float) -> str:
    """Write a number in the few characters that fit beside a chart: `250`, `50k`, `1.5M`."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:,.10g}M"
    return f"{value / 1000:.10g}k" if value >= 10_000 else f"{value:,.10g}"


def _framed(title: str, labels: Sequence[str], top: float, marks: Markup) -> Markup:
    grid = Markup()
    for value in (0, 0.5 * top, top):
        kind, y = "gridline" if value else "axis", _y(value, top)
        grid += _GRID.format(kind, _LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y + 4, _short(value))
    return Markup(
        '<svg class="chart" role="img" viewBox="0 0 {:.0f} {:.0f}" aria-label="{}">{}{}{}</svg>'
    ).format(_WIDTH, _HEIGHT, title, grid, marks, _below(labels))


def _below(labels: Sequence[str]) -> Markup:
    if not labels:
        return Markup()
    places = {0: "start", len(labels) // 2: "middle", len(labels) - 1: "end"}
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels) - 1)
    return Markup().join(
        Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
            _LEFT + place * step, _HEIGHT - 6, anchor, labels[place]
        )
        for place, anchor in places.items()
    )


def _points(values: Sequence[float], top: float) -> str:
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(values) - 1)
    return " ".join(
        f"{_LEFT + place * step:.1f},{_y(value, top):.1f}" for place, value in enumerate(values)
    )


def _y(value: float, top: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / top)
