"""Renders the templates. Autoescape is on for all of them, and a name that a template misspells is
an error, not an empty text. Knows no page in particular."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from control_api.console.navigation import areas
from control_api.console.static import StaticFiles
from control_api.console.visit import Visit, address
from control_api.responses.paging import write_cursor
from policies import __version__

_SECOND = 1_000_000  # microseconds
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Renderer:
    """Renders a page for a visit."""

    def __init__(self, static: StaticFiles) -> None:
        self._environment = environment = Environment(
            loader=PackageLoader("control_api.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.globals |= {
            "address": address,
            "asset": static.address,
            "version": __version__,
        }
        environment.filters |= {
            "when": when,
            "ago": ago,
            "count": count,
            "span": span,
            "cursor": write_cursor,
        }

    def page(self, template: str, values: Mapping[str, Any], visit: Visit) -> bytes:
        """The page as UTF-8. Beside its own values a template has `visit`, `who` (None without a
        sign-in), `areas`, `here(**changes)`, `now` and what the globals are."""
        shown = self._environment.get_template(template).render(
            values,
            visit=visit,
            who=visit.who,
            areas=areas(visit),
            now=visit.app.clock.now(),
            here=partial(here, visit),
        )
        return shown.encode()


def here(visit: Visit, **changes: str | int | None) -> str:
    """The address of the page that is shown, with these fields of the query changed; None removes
    one."""
    fields: dict[str, Any] = {**visit.query, **changes}
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return visit.path + (f"?{urlencode(given)}" if given else "")


def _instant(value: str | int) -> datetime:
    if isinstance(value, int):
        return datetime.fromtimestamp(value / _SECOND, UTC)
    return datetime.fromisoformat(value).astimezone(UTC)


def when(value: str | int) -> str:
    """A time, as RFC 3339 text or microseconds since 1970, for people: `2026-01-31 12:00:00`, in
    UTC."""
    return _instant(value).strftime("%Y-%m-%d %H:%M:%S")


def ago(value: str | int, now: int) -> str:
    """How long ago a time was, or how far ahead it is, in one unit: `5 min ago`, `in 3 d`."""
    seconds = now / _SECOND - _instant(value).timestamp()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A time in one unit: `45 s`, `5 min`, `3 h`, `12 d`."""
    for size, name in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "0 s"


def count(number: int) -> str:
    """A number with its thousands apart: `1,234,567`."""
    return f"{number:,}"
