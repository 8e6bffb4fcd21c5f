"""Serves the style sheet and the ES modules, and renders templates with every page's navigation.

The files' addresses change with their contents, so a browser keeps them for good and never mixes
versions: modules import one another by relative addresses.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from control_api.alerts.operations import list_fired_alerts
from control_api.audit.event_operations import list_events, show_stats
from control_api.audit.proof_operations import list_checkpoints
from control_api.console.page import ROOT, Visit, address
from control_api.edge.answers import write_cursor
from control_api.edge.route import Operation
from control_api.fleet.operations import list_sidecars
from control_api.policy.access_operations import show_access
from control_api.policy.operations import list_policies
from control_api.registry.agent_operations import list_agents
from control_api.registry.key_operations import list_keys
from control_api.sessions.operations import list_sessions
from control_api.tenants.operations import list_tenants
from policies import __version__
from policies.ground.errors import NotFound

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    content_type: str
    body: bytes


class StaticFiles:
    """The files of `static/`, read once at the start."""

    def __init__(self) -> None:
        found = sorted(files("control_api.console").joinpath("static").iterdir(), key=str)
        self._files = {
            each.name: StaticFile(_TYPES[kind], each.read_bytes())
            for each in found
            if (kind := each.name.rpartition(".")[2]) in _TYPES
        }
        digest = sha256(b"".join(each.body for each in self._files.values())).hexdigest()
        self.prefix = f"{ROOT}/static/{digest[:16]}/"

    def address(self, name: str) -> str:
        """Return the address at which pages find the file. Raises `KeyError` if there is no such
        file."""
        if name not in self._files:
            raise KeyError(name)
        return self.prefix + name

    def find(self, path: str) -> StaticFile:
        """Return the file that is served at `path`. Raises `NotFound` if there is none."""
        found = self._files.get(path.removeprefix(self.prefix))
        if not path.startswith(self.prefix) or found is None:
            raise NotFound("no such file")
        return found


class Area(NamedTuple):
    """An area of the console's navigation: its title, its first page, the operation that this page
    calls, and the key that leads there after `g`. `current` is True if the page that is shown
    belongs to the area."""

    title: str
    path: str
    operation: Operation
    key: str
    current: bool = False


AREAS = (
    Area("Overview", ROOT, show_stats, "o"),
    Area("Decisions", f"{ROOT}/decisions", list_events, "d"),
    Area("Agents", f"{ROOT}/agents", list_agents, "a"),
    Area("Policies", f"{ROOT}/policies", list_policies, "p"),
    Area("Access", f"{ROOT}/access", show_access, "c"),
    Area("Sessions", f"{ROOT}/sessions", list_sessions, "s"),
    Area("Keys", f"{ROOT}/keys", list_keys, "k"),
    Area("Alerts", f"{ROOT}/alerts", list_fired_alerts, "l"),
    Area("Fleet", f"{ROOT}/fleet", list_sidecars, "f"),
    Area("Audit", f"{ROOT}/audit", list_checkpoints, "u"),
    Area("Tenants", f"{ROOT}/tenants", list_tenants, "t"),
)


def areas(visit: Visit) -> list[Area]:
    return [
        area._replace(current=_belongs(visit.path, area.path))
        for area in AREAS
        if visit.who is not None and visit.may_call(area.operation)
    ]


def _belongs(path: str, first: str) -> bool:
    # `/console/agent` and `/console/agent/edit` belong to `/console/agents`.
    if first == ROOT:
        return path == ROOT
    singular = first[:-3] + "y" if first.endswith("ies") else first.removesuffix("s")
    return path in (first, singular) or path.startswith((f"{first}/", f"{singular}/"))


_SECOND = 1_000_000  # microseconds
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Renderer:
    def __init__(self, static: StaticFiles) -> None:
        self._environment = environment = Environment(
            loader=PackageLoader("control_api.console"),
            autoescape=True,
            undefined=StrictUndefined,  # a misspelt name is an error, not an empty text
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.globals |= {"address": address, "asset": static.address, "version": __version__}
        environment.filters |= {
            "when": when,
            "ago": ago,
            "count": "{:,}".format,
            "span": span,
            "cursor": write_cursor,
        }

    def page(self, template: str, values: Mapping[str, Any], visit: Visit) -> bytes:
        """Return the page as UTF-8. Beside its own values a template has `visit`, `who` (the
        signed-in person or None), `areas`, `here(**changes)`, `now` and the environment's
        globals."""
        text = self._environment.get_template(template).render(
            values,
            visit=visit,
            who=visit.who,
            areas=areas(visit),
            now=visit.console.clock.now(),
            here=partial(here, visit),
        )
        return text.encode()


def here(visit: Visit, **changes: str | int | None) -> str:
    """Return the address of the page that is shown, with these fields of the query changed; None
    removes a field."""
    fields: dict[str, Any] = {**visit.query, **changes}
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return visit.path + (f"?{urlencode(given)}" if given else "")


def _instant(value: str | int) -> datetime:
    if isinstance(value, int):
        return datetime.fromtimestamp(value / _SECOND, UTC)
    return datetime.fromisoformat(value).astimezone(UTC)


def when(value: str | int) -> str:
    """Return a time for people, such as `2026-01-31 12:00:00`, in UTC. `value` is RFC 3339 text, or
    microseconds since 1970."""
    return _instant(value).strftime("%Y-%m-%d %H:%M:%S")


def ago(value: str | int, now: int) -> str:
    """Return how long ago a time was, or how far ahead it is, in one unit: `5 min ago`, `in 3
    d`."""
    seconds = now / _SECOND - _instant(value).timestamp()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """Return a duration in one unit: `45 s`, `5 min`, `3 h`, `12 d`."""
    for size, name in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "0 s"
