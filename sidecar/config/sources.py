"""The data sources of a settings file, each a mapping of the list `sources`. Knows no other key."""

import re
from pathlib import Path

from policies.definitions.model import SENSITIVITIES
from sidecar.config.aws import aws_of
from sidecar.config.listeners import (
    addresses_of,
    hosts_of,
    listen_of,
    path_of,
    refuse_unread,
    upstream_of,
)
from sidecar.config.sections import Section
from sidecar.config.tls import client_tls, pair_of
from sidecar.settings.model import (
    KINDS,
    MODES,
    ROUTE_CLASSES,
    Defaults,
    NamedSource,
    RestRule,
    Source,
)

_ALIAS = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z")
_FIELD_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){0,7}\Z")
_ENDPOINT = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?\Z")
_METHOD = re.compile(r"[A-Z]{1,32}\Z|\*\Z")


def read_source(section: Section, base: Path, *, elsewhere: bool) -> Source:
    """One source; paths in it are relative to `base`. `elsewhere` is whether other ways than a
    `listen` of its own lead to it."""
    alias = section.required("alias")
    if alias and not _ALIAS.match(alias):
        section.complain("alias", "must have the form [a-z0-9][a-z0-9_.-]{0,63}")
    kind = section.choice("kind", KINDS, None)
    sensitivity = section.choice("sensitivity", SENSITIVITIES, None)
    source = Source(
        alias=alias,
        kind=kind,
        upstream=upstream_of(section, kind),
        listen=listen_of(section, needed=not elsewhere),
        sensitivity=sensitivity,
        writes=section.choice("writes", ("deny", "allow"), "deny"),
        mode=section.choice("mode", MODES, "enforce"),
        names={
            name: _named(each, name, sensitivity) for name, each in section.named_sections("names")
        },
        routes=tuple(_route(each) for each in section.sections("routes")),
        defaults=_defaults(section.section("defaults")),
        endpoint=_endpoint(section, kind),
        arguments=_arguments(section, kind),
        sensitivity_field=_field_path(section, "sensitivity_field", "acl.level"),
        hosts=hosts_of(section),
        path=path_of(section),
        aws=aws_of(section, kind, base),
        addresses=addresses_of(section),
        tls=client_tls(section, "tls", "upstream", base),
        listen_tls=pair_of(section, "listen_tls", base),
        terminate=pair_of(section, "terminate", base),
    )
    if kind == "tcp":
        refuse_unread(section, source)
    elif source.routes and kind != "rest":
        section.complain("routes", "are for sources of the kind `rest`")
    for name in source.names:
        if not name.startswith(f"{kind}://{alias}/"):
            section.complain("names", f"`{name}` does not begin with `{kind}://{alias}/`")
    section.close()
    return source


def _endpoint(section: Section, kind: str) -> str:
    path = section.text("endpoint")
    if path is not None and kind != "mcp":
        section.complain("endpoint", "is for sources of the kind `mcp`")
    if path is not None and not (path and _ENDPOINT.match(path)):
        section.complain("endpoint", "must be a plain path, such as `/mcp`")
    return path or "/mcp"


def _arguments(section: Section, kind: str) -> dict[str, str]:
    named = section.section("arguments")
    if named.given and kind != "mcp":
        section.complain("arguments", "are for sources of the kind `mcp`")
    found = {tool: _field_path(named, tool, "filter.collection") for tool in named.own_keys()}
    for tool, path in found.items():
        if path is None:
            named.complain(tool, "does not say where the name stands")
    return {tool: path or "" for tool, path in found.items()}


def _field_path(section: Section, key: str, example: str) -> str | None:
    path = section.text(key)
    if path is not None and not _FIELD_PATH.match(path):
        section.complain(key, f"must be names with dots between, such as `{example}`")
    return path


def _named(section: Section, name: str, level: str) -> NamedSource:
    named = NamedSource(
        source_id=section.identifier("source_id") or name,
        sensitivity=section.choice("sensitivity", SENSITIVITIES, level),
    )
    section.close()
    return named


def _route(section: Section) -> RestRule:
    method, path = section.required("method"), section.required("path")
    if method and not _METHOD.match(method):
        section.complain("method", "must be a method in capitals, or `*`")
    if path and not path.startswith("/"):
        section.complain("path", "must begin with `/`")
    route = RestRule(
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
