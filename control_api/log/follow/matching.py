"""Matches new entries against many sets of filters at once. Knows columns, and no database."""

from collections.abc import Iterable, Sequence
from typing import Any

from control_api.log.search import MOST_SELECTIVE, EventFilters

Row = Sequence[Any]
"""The `seq` of an entry, then the columns of `columns_of`."""


def columns_of(filters: Iterable[EventFilters]) -> list[str]:
    """The columns that any of the filters compares: the fewer are read, the faster."""
    wanted = list(filters)
    names = [
        name for name in MOST_SELECTIVE if any(getattr(each, name) is not None for each in wanted)
    ]
    if any(each.since is not None or each.until is not None for each in wanted):
        names.append("ts")
    return names


def match(
    rows: Sequence[Row], columns: Sequence[str], filters: Iterable[EventFilters]
) -> dict[EventFilters, list[int]]:
    """For each set of filters the `seq`s of the rows that match all of it, in the order of the
    rows. `columns` are those of `columns_of`."""
    places = {name: place for place, name in enumerate(columns, 1)}
    # Many watch one agent or one source each. So the rows are sorted by their values once, and each
    # set of filters looks at the rows with its own value only.
    by_value: dict[str, dict[Any, list[Row]]] = {}
    found = {}
    for each in filters:
        given = [name for name in MOST_SELECTIVE if getattr(each, name) is not None]
        candidates: Sequence[Row] = rows
        if given:
            first = given.pop(0)
            if first not in by_value:
                by_value[first] = _sorted(rows, places[first])
            candidates = by_value[first].get(getattr(each, first), ())
        for name in given:
            place, value = places[name], getattr(each, name)
            candidates = [row for row in candidates if row[place] == value]
        if each.since is not None:
            candidates = [row for row in candidates if row[places["ts"]] >= each.since]
        if each.until is not None:
            candidates = [row for row in candidates if row[places["ts"]] < each.until]
        found[each] = [row[0] for row in candidates]
    return found


def _sorted(rows: Sequence[Row], place: int) -> dict[Any, list[Row]]:
    by_value: dict[Any, list[Row]] = {}
    for row in rows:
        by_value.setdefault(row[place], []).append(row)
    return by_value
