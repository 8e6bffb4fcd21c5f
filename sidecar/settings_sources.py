"""The data sources of a settings file, each a mapping of the list `sources`. Knows no other key."""

import re

from policies.ground.listen import Listen
from policies.model import SENSITIVITIES
from sidecar.settings import KINDS, ROUTE_CLASSES, Defaults, Named, Route, Settings, Source
from sidecar.settings_section import Section

_ALIAS = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z")
_FIELD_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){0,7}\Z")
_METHOD = re.compile(r"[A-Z]{1,32}\Z|\*\Z")


def read_source(section: Section) -> Source:
    alias = section.required("alias")
    if alias and not _ALIAS.match(alias):
        section.complain("alias", "must have the form [a-z0-9][a-z0-9_.-]{0,63}")
    kind = section.choice("kind", KINDS, None)
    sensitivity = section.choice("sensitivity", SENSITIVITIES, None)
    listen = section.listen("listen")
    if listen is None and section.text("listen") is None:
        section.complain("listen", "is required")
    source = Source(
        alias=alias,
        kind=kind,
        upstream=section.address("upstream"),
        listen=listen or Listen("127.0.0.1", 0),
        sensitivity=sensitivity,
        writes=section.choice("writes", ("deny", "allow"), "deny"),
        names={
            name: _named(each, name, sensitivity) for name, each in section.named_sections("names")
        },
        routes=tuple(_route(each) for each in section.sections("routes")),
        defaults=_defaults(section.section("defaults")),
        sensitivity_field=_field_path(section),
    )
    if source.routes and kind != "rest":
        section.complain("routes", "are for sources of the kind `rest`")
    for name in source.names:
        if not name.startswith(f"{kind}://{alias}/"):
            section.complain("names", f"`{name}` does not begin with `{kind}://{alias}/`")
    section.close()
    return source


def _field_path(section: Section) -> str | None:
    path = section.text("sensitivity_field")
    if path is not None and not _FIELD_PATH.match(path):
        section.complain(
            "sensitivity_field", "must be names with dots between, such as `acl.level`"
        )
    return path


def _named(section: Section, name: str, level: str) -> Named:
    named = Named(
        source_id=section.identifier("source_id") or name,
        sensitivity=section.choice("sensitivity", SENSITIVITIES, level),
    )
    section.close()
    return named


def _route(section: Section) -> Route:
    method, path = section.required("method"), section.required("path")
    if method and not _METHOD.match(method):
        section.complain("method", "must be a method in capitals, or `*`")
    if path and not path.startswith("/"):
        section.complain("path", "must begin with `/`")
    route = Route(
        method=method,
        path=path,
        class_=section.choice("class", ROUTE_CLASSES, None),
        source_id=section.identifier("source_id"),
        sensitivity=section.choice("sensitivity", SENSITIVITIES, "") or None,
    )
    section.close()
    return route


def _defaults(section: Section) -> Defaults:
    found = Defaults(
        section.identifier("user"), section.identifier("session"), section.identifier("task")
    )
    section.close()
    return found


def refuse_shared(top: Section, settings: Settings) -> None:
    """Two listeners on one port, or two sources under one name."""
    taken = {settings.listen: "listen"}
    places = (
        [] if settings.metrics_listen is None else [(settings.metrics_listen, "metrics_listen")]
    )
    for index, source in enumerate(settings.sources):
        places.append((source.listen, f"sources[{index}].listen"))
    for listen, key in places:
        other = taken.setdefault(listen, key)
        if other != key and listen.port:
            top.complain(key, f"`{listen}` is the address of `{other}` too")
    aliases: dict[str, int] = {}
    for index, source in enumerate(settings.sources):
        first = aliases.setdefault(source.alias, index)
        if first != index:
            top.complain(
                f"sources[{index}].alias", f"`{source.alias}` is that of sources[{first}] too"
            )
